package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// lease is one leased record.
type lease struct {
	s   *Store
	key meta.Key
	id  string // leaseIDLen characters
	ttl int64  // milliseconds
}

var _ meta.Lease = (*lease)(nil)

// Lease implements meta.Slots. The record is there until the server's clock has
// come to its end; it is taken out, and its watches are told, by the next change
// of the slot or by a watch of it.
func (s *Store) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	var id [leaseIDLen / 2]byte
	rand.Read(id[:])
	l := &lease{s: s, key: key, id: hex.EncodeToString(id[:]), ttl: max(1, ttl.Milliseconds())}
	if value == nil {
		value = []byte{}
	}
	if _, err := s.apply(ctx, key.Slot, conds, []meta.Set{{Field: key.Field, Value: value}}, l.ttl, l.id); err != nil {
		return nil, err
	}
	s.leased.Store(kind(key.Slot), struct{}{})
	return l, nil
}

// Renew implements meta.Lease.
func (l *lease) Renew(ctx context.Context) error {
	mine, err := l.call(ctx, l.s.scripts.renew)
	if err == nil && !mine {
		err = fmt.Errorf("renew %s: %w", l.key.Slot, meta.ErrNotFound)
	}
	return err
}

// Release implements meta.Lease.
func (l *lease) Release(ctx context.Context) error {
	_, err := l.call(ctx, l.s.scripts.release)
	return err
}

// call runs a script that says whether the record was still the lease's.
func (l *lease) call(ctx context.Context, sc *script) (mine bool, err error) {
	c := &call{script: sc, keys: l.s.keys(l.key.Slot), args: []any{l.s.publishTo(), l.key.Field, l.id, l.ttl}}
	if err := l.s.write(ctx, c); err != nil {
		return false, err
	}
	if told, ok := c.reply.(string); ok && len(told) > versionLen {
		l.s.toStream(l.key.Slot, told[versionLen:])
		return true, nil
	}
	return number(c.reply) == 1, nil
}
