package staging

import "context"

// Renew makes sure that what is being published has its keeper in a store that
// lost its records, or may have: the sets of publishes under way are announced
// again, and those that begin after it use new ones. It may be called again
// after an error.
func (a *Area) Renew(ctx context.Context) error {
	for _, set := range a.sets.renew() {
		if err := a.announce(ctx, set); err != nil {
			return err
		}
	}
	return nil
}
