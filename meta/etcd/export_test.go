package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Compact makes the server forget all history.
func (s *Store) Compact(ctx context.Context) error {
	cl, err := s.conn.get(ctx)
	if err != nil {
		return err
	}
	r, err := cl.Get(ctx, "x")
	if err != nil {
		return err
	}
	_, err = cl.Compact(ctx, r.Header.Revision)
	return err
}

// Keys returns every key of the server.
func (s *Store) Keys(ctx context.Context) (keys []string, err error) {
	cl, err := s.conn.get(ctx)
	if err != nil {
		return nil, err
	}
	r, err := cl.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range r.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, nil
}

// Written returns the bytes of all keys and values that the server has written
// since a revision, and the revision it is at.
func (s *Store) Written(ctx context.Context, since int64) (bytes int, at int64, err error) {
	cl, err := s.conn.get(ctx)
	if err != nil {
		return 0, 0, err
	}
	now, err := cl.Get(ctx, "x")
	if err != nil {
		return 0, 0, err
	}
	at = now.Header.Revision
	for rev := since + 1; rev <= at; rev++ {
		r, err := cl.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(rev), clientv3.WithMinModRev(rev))
		if err != nil {
			return 0, 0, err
		}
		for _, kv := range r.Kvs {
			bytes += len(kv.Key) + len(kv.Value)
		}
	}
	return bytes, at, nil
}
