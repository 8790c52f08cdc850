package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/p2pfs/p2pfs/meta"
)

// pageMax bounds how long a page keeps the server from others: some
// milliseconds.
const pageMax = 5000

// List implements meta.Slots: pages in the order of fields. Next is the last
// field. A later page shows changes made meanwhile.
func (s *Store) List(ctx context.Context, slot meta.Slot, next string, limit int) (meta.Page, error) {
	limit = min(limit, pageMax)
	k := s.key(slot)
	c := &call{script: s.scripts.list, keys: []string{k, s.keys(slot)[2]}, args: []any{next, limit + 2}}
	if err := s.read(ctx, c); err != nil {
		return meta.Page{}, err
	}
	p, err := parsePage(slot, c, next, limit)
	if err != nil {
		return meta.Page{}, fmt.Errorf("list %s: %w", slot, err)
	}
	return p, nil
}

func parsePage(slot meta.Slot, c *call, next string, limit int) (p meta.Page, err error) {
	answer, err := c.list(1)
	if err != nil {
		return meta.Page{}, err
	}
	ms := number(answer[0])
	if len(answer) < 2 || answer[1] == nil {
		return meta.Page{}, nil
	}
	facts, _ := answer[1].(string)
	if p.Version, err = parseDigits(facts); err != nil {
		return meta.Page{}, err
	}
	answer = answer[2:]
	p.Records = make([]meta.Record, 0, len(answer)/2)
	for ; len(answer) >= 2; answer = answer[2:] {
		field, _ := answer[0].(string)
		raw, there := answer[1].(string)
		if field == "" || field <= next || !there {
			continue
		}
		r := meta.Record{Slot: slot, Field: field}
		if _, err := parseRecord(&r, raw, ms); err != nil {
			return meta.Page{}, err
		}
		p.Records = append(p.Records, r)
	}
	slices.SortFunc(p.Records, func(a, b meta.Record) int { return cmp.Compare(a.Field, b.Field) })
	if len(p.Records) > limit {
		p.Records = p.Records[:limit]
		p.Next = p.Records[limit-1].Field
	}
	// A record whose lease is over stays in its place until here.
	p.Records = slices.DeleteFunc(p.Records, func(r meta.Record) bool { return r.Value == nil })
	return p, nil
}
