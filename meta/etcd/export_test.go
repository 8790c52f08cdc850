package etcd

import "context"

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
