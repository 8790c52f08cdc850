package redis

import (
	"context"
	"fmt"

	"github.com/p2pfs/p2pfs/meta"
)

var _ meta.Historian = (*Store)(nil)

// Serving implements meta.Historian.
func (s *Store) Serving(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadTimeout)
	defer cancel()
	serving, err := s.servers.serving(ctx)
	if err != nil {
		return "", s.explain(ctx, err)
	}
	return serving, nil
}

// Lacks implements meta.Historian, by the slot's log. Of a slot whose log has
// gone since, all that is known is whether it has come as far.
func (s *Store) Lacks(ctx context.Context, slot meta.Slot, versions []uint64) (bool, error) {
	c := &call{script: s.scripts.lacks, keys: s.keys(slot)[:2]}
	for _, v := range versions {
		c.args = append(c.args, digits(v))
	}
	if err := s.read(ctx, c); err != nil {
		return false, err
	}
	n, ok := c.reply.(int64)
	if !ok {
		return false, fmt.Errorf("%w: the store answered %.40q", meta.ErrFormat, fmt.Sprint(c.reply))
	}
	return n == 1, nil
}
