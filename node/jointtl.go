package node

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/meta"
)

// renewAtOnce is how many names get their new time side by side.
const renewAtOnce = 8

// metName is a name that was there before a registration.
type metName struct {
	dir   meta.InodeID
	entry meta.Entry
}

// renew gives the names that were there already, and stand for what is registered,
// the time that a new name would have: registering again keeps them alive. A
// directory that has no time gets none, for there may be more in it.
func (r *registration) renew(ctx context.Context) error {
	given := map[meta.Place]bool{}
	for _, n := range r.namings {
		given[meta.Place{Dir: n.dir, Name: n.entry.Name}] = true
	}
	until := meta.Expiry(r.ttl)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(renewAtOnce)
	for _, m := range r.met {
		was := m.entry.ExpiresNs
		if was == until || was == 0 && m.entry.Kind == meta.KindDir || given[meta.Place{Dir: m.dir, Name: m.entry.Name}] {
			continue
		}
		g.Go(func() error {
			e, err := r.node.catalog.SetAttr(gctx, m.dir, m.entry.Name, m.entry.Inode, meta.AttrChange{Expires: &until})
			if errors.Is(err, meta.ErrNotFound) {
				err = fmt.Errorf("%w: %w", errRaced, err)
			}
			if err != nil {
				return fmt.Errorf("renew %q: %w", m.entry.Name, err)
			}
			r.node.view.Wrote(m.dir, e)
			return nil
		})
	}
	return g.Wait()
}
