package redis

import (
	"context"
	"fmt"

	"github.com/p2pfs/p2pfs/meta"
)

// Apply implements meta.Slots.
func (s *Store) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	return s.apply(ctx, slot, conds, sets, 0, "")
}

// apply is Apply of records that stay, or for ttl milliseconds as a lease.
func (s *Store) apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set, ttl int64, lease string) (uint64, error) {
	if err := meta.CheckApply(slot, conds, sets); err != nil {
		return 0, err
	}
	if err := s.checkStore(ctx, slot, conds); err != nil {
		return 0, err
	}
	c := &call{script: s.scripts.apply, keys: s.keys(slot)}
	p := newPlan(sets, ttl > 0)
	var others []any
	for _, cond := range conds {
		kind := condition(cond)
		switch {
		case cond.Store && slot != meta.StoreSlot:
			if s.target.form == cluster {
				continue // checkStore did
			}
			if len(c.keys) == 4 {
				c.keys = append(c.keys, s.key(meta.StoreSlot))
			}
			others = append(others, "s", cond.Field, "")
		case !p.require(cond, kind):
			others = append(others, kind, cond.Field, digits(cond.Version))
		}
	}
	c.args = append([]any{s.publishTo(), ttl, lease, p.text, p.cuts, p.conds, p.digits()}, others...)
	if err := s.write(ctx, c); err != nil {
		return 0, err
	}
	version, err := c.text()
	if err != nil {
		return 0, fmt.Errorf("change %s: %w", slot, err)
	}
	if version == "" {
		return 0, fmt.Errorf("change %s: %w", slot, meta.ErrConflict)
	}
	if len(version) > versionLen {
		s.toStream(slot, version[versionLen:])
	}
	return parseDigits(version)
}

// condition returns the letter of a condition as luaApply knows it.
func condition(c meta.If) string {
	switch {
	case c.NoOthers:
		return "n"
	case c.Absent:
		return "a"
	case c.Present:
		return "p"
	}
	return "v"
}

// checkStore checks the conditions on the store's own slot before a change,
// where another server may have it.
func (s *Store) checkStore(ctx context.Context, slot meta.Slot, conds []meta.If) error {
	if s.target.form != cluster || slot == meta.StoreSlot {
		return nil
	}
	var keys []meta.Key
	for _, c := range conds {
		if c.Store {
			keys = append(keys, meta.Key{Slot: meta.StoreSlot, Field: c.Field})
		}
	}
	recs, err := s.Get(ctx, keys...)
	if err != nil {
		return err
	}
	for _, r := range recs {
		if r.Value == nil {
			return fmt.Errorf("change %s: %w", slot, meta.ErrConflict)
		}
	}
	return nil
}

// publish returns the command that tells of a change, in a Cluster one that
// stays with the servers of the slot, and what makes a hash's key a channel:
// databases of one server have their channels in common.
func (s *Store) publish() string {
	if s.target.form == cluster {
		return "SPUBLISH" + s.at()
	}
	return "PUBLISH" + s.at()
}

// publishTo is publish for scripts whose changes are told to followers, too.
func (s *Store) publishTo() string {
	switch o := s.opts.Stream; {
	case o.Key == "":
		return s.publish()
	case s.target.form == cluster:
		return s.publish() + " R"
	default:
		return fmt.Sprintf("%s %d:%s %s", s.publish(), o.MaxLen, o.Key, streamCounter(o.Key))
	}
}

func (s *Store) at() string { return fmt.Sprintf("@%d", s.target.db) }
