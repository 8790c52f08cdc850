package redis

import (
	"context"
	"fmt"
	"strings"

	"github.com/p2pfs/p2pfs/meta"
)

// kind is what slots of one sort have in common: those of nodes have leased
// records, those of directories have none.
func kind(slot meta.Slot) string {
	k, _, _ := strings.Cut(string(slot), "/")
	return k
}

// seenLeased reports whether slots of this kind have had leased records. They
// are read by a script, which tells the server's time with them; others by a
// plain command, and once more when a leased record turns up.
func (s *Store) seenLeased(slot meta.Slot) bool {
	_, ok := s.leased.Load(kind(slot))
	return ok
}

// part is the keys of one slot in a Get.
type part struct {
	call  call
	where []int // of its fields among the keys
}

// Get implements meta.Slots.
func (s *Store) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	out := make([]meta.Record, len(keys))
	parts := make(map[meta.Slot]*part, 1)
	var order []*part
	for i, k := range keys {
		out[i] = meta.Record{Slot: k.Slot, Field: k.Field}
		p := parts[k.Slot]
		if p == nil {
			p = &part{call: call{keys: []string{s.key(k.Slot)}}}
			if s.seenLeased(k.Slot) {
				p.call.script = s.scripts.get
			}
			parts[k.Slot] = p
			order = append(order, p)
		}
		p.call.args = append(p.call.args, k.Field)
		p.where = append(p.where, i)
	}
	for len(order) > 0 {
		calls := make([]*call, len(order))
		for i, p := range order {
			calls[i] = &p.call
		}
		if err := s.read(ctx, calls...); err != nil {
			return nil, err
		}
		again := order[:0]
		for _, p := range order {
			leased, err := p.fill(out)
			if err != nil {
				return nil, err
			}
			if leased && p.call.script == nil {
				s.leased.Store(kind(out[p.where[0]].Slot), struct{}{})
				p.call.script = s.scripts.get
				again = append(again, p)
			}
		}
		order = again
	}
	return out, nil
}

// fill puts what was read where it was asked for. leased says that some record
// has an end.
func (p *part) fill(out []meta.Record) (leased bool, err error) {
	values, err := p.call.list(len(p.where))
	if err != nil {
		return false, err
	}
	ms := uint64(0)
	if p.call.script != nil {
		ms, values = number(values[0]), values[1:]
	}
	for i, at := range p.where {
		r := &out[at]
		r.Value, r.Version = nil, 0
		if i >= len(values) { // a list of Lua ends where the rest is missing
			continue
		}
		raw, ok := values[i].(string)
		switch {
		case !ok:
			continue
		case r.Field == "":
			if r.Version, err = parseDigits(raw); err != nil {
				return false, fmt.Errorf("read version of %s: %w", r.Slot, err)
			}
			continue
		}
		l, err := parseRecord(r, raw, ms)
		if err != nil {
			return false, err
		}
		leased = leased || l
	}
	return leased, nil
}

// Version implements meta.Slots.
func (s *Store) Version(ctx context.Context, slot meta.Slot) (uint64, error) {
	recs, err := s.Get(ctx, meta.Key{Slot: slot})
	if err != nil {
		return 0, err
	}
	return recs[0].Version, nil
}
