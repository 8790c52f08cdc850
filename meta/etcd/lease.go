package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/p2pfs/p2pfs/meta"
)

// lease is one leased record.
type lease struct {
	s   *Store
	key meta.Key
	id  clientv3.LeaseID
}

var _ meta.Lease = (*lease)(nil)

// Lease implements meta.Slots. etcd counts whole seconds, two at least.
func (s *Store) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	wctx, cancel := context.WithTimeout(ctx, s.opts.WriteTimeout)
	defer cancel()
	cl, err := s.conn.get(wctx)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	g, err := cl.Grant(wctx, max(seconds, 1))
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	l := &lease{s: s, key: key, id: g.ID}
	_, err = s.apply(ctx, key.Slot, conds, []meta.Set{{Field: key.Field, Value: value}}, clientv3.WithLease(g.ID))
	if errors.Is(err, meta.ErrConflict) {
		_, _ = cl.Revoke(wctx, g.ID) // else it runs out by itself
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Renew implements meta.Lease.
func (l *lease) Renew(ctx context.Context) error {
	wctx, cancel := context.WithTimeout(ctx, l.s.opts.WriteTimeout)
	defer cancel()
	cl, err := l.s.conn.get(wctx)
	if err != nil {
		return l.s.explain(ctx, err)
	}
	if _, err = cl.KeepAliveOnce(wctx, l.id); err == nil {
		// The lease lives on when another took the record over.
		var r *clientv3.GetResponse
		r, err = cl.Get(wctx, l.s.key(l.key.Slot, l.key.Field), clientv3.WithKeysOnly())
		if err == nil && (len(r.Kvs) == 0 || clientv3.LeaseID(r.Kvs[0].Lease) != l.id) {
			err = rpctypes.ErrLeaseNotFound
		}
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("renew %s: %w", l.key.Slot, meta.ErrNotFound)
	}
	return l.s.explain(ctx, err)
}

// Release implements meta.Lease.
func (l *lease) Release(ctx context.Context) error {
	wctx, cancel := context.WithTimeout(ctx, l.s.opts.WriteTimeout)
	defer cancel()
	cl, err := l.s.conn.get(wctx)
	if err != nil {
		return l.s.explain(ctx, err)
	}
	key := l.s.key(l.key.Slot, l.key.Field)
	_, err = cl.Txn(wctx).
		If(clientv3.Compare(clientv3.LeaseValue(key), "=", l.id)).
		Then(clientv3.OpPut(l.s.slotKey(l.key.Slot), ""), clientv3.OpDelete(key)).
		Commit()
	if err == nil {
		_, err = cl.Revoke(wctx, l.id)
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return l.s.explain(ctx, err)
}
