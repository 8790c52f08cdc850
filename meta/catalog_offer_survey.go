package meta

import (
	"context"
	"fmt"
)

// Survey is what the store says of the names of one directory, with origins.
type Survey struct {
	Alive   bool   // the directory is there
	Version uint64 // of the directory; 0: it never was in this store
	Epoch   Epoch
	Names   map[string]Offer // of those asked for; without the tombstones
}

// Survey reads names of a directory: those given, or all for none. It answers
// only for the store that was joined, and not while names are brought back: one
// that is not back yet would be taken for removed.
func (c *Catalog) Survey(ctx context.Context, dir InodeID, names ...string) (Survey, error) {
	if c.Held() {
		return Survey{}, fmt.Errorf("compare directory %016x: %w: %w", uint64(dir), ErrUnavailable, errRestoring)
	}
	s, err := c.survey(ctx, dir, names)
	if err == nil {
		err = c.CheckStore(ctx) // after the reads: they were of this store
	}
	if now, _ := c.Joined(); err == nil && now.Epoch != s.Epoch {
		err = fmt.Errorf("%w: it was lost, and brought back meanwhile", ErrUnavailable)
	}
	if err != nil {
		return Survey{}, fmt.Errorf("compare directory %016x: %w", uint64(dir), err)
	}
	return s, nil
}

func (c *Catalog) survey(ctx context.Context, dir InodeID, names []string) (Survey, error) {
	info, ok := c.Joined()
	if !ok {
		return Survey{}, ErrNotFound
	}
	s := Survey{Epoch: info.Epoch, Names: map[string]Offer{}}
	slot := dirSlot(dir)
	take := func(recs []Record) error {
		for _, r := range recs {
			switch {
			case r.Value == nil:
			case r.Field == self:
				_, err := dirOf(dir, r)
				s.Alive = err == nil
			case isName(r.Field):
				o, err := info.originOf(r)
				if err != nil {
					return err
				}
				e, err := c.entry(r)
				if err != nil {
					return err
				}
				s.Names[r.Field] = Offer{Name: r.Field, Entry: e, Origin: o}
			}
		}
		return nil
	}
	if len(names) > 0 {
		keys := []Key{{slot, ""}, {slot, self}}
		for _, n := range names {
			keys = append(keys, Key{slot, n})
		}
		recs, err := c.raw.Get(ctx, keys...)
		if err != nil {
			return Survey{}, err
		}
		s.Version = recs[0].Version
		return s, take(recs[1:])
	}
	next := ""
	for first := true; first || next != ""; first = false {
		p, err := c.raw.List(ctx, slot, next, listPage)
		if err != nil {
			return Survey{}, err
		}
		if first {
			s.Version = p.Version
		}
		if err := take(p.Records); err != nil {
			return Survey{}, err
		}
		next = p.Next
	}
	return s, nil
}

// Later reports whether one origin is later than another, as the store that was
// joined counts.
func (c *Catalog) Later(a, b Origin) bool {
	info, ok := c.Joined()
	return ok && info.rank(b).less(info.rank(a))
}
