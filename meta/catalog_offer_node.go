package meta

import "context"

// Rejoin writes the node's record, and its line on the roll, into a store that
// lost them, or may have.
func (m *Membership) Rejoin(ctx context.Context) error {
	if err := m.join(ctx); err != nil {
		return err
	}
	return m.c.Enroll(ctx, m.info)
}
