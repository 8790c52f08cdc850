package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// try fetches all blocks of l over one connection. Once a lease was given, any
// failure costs the connection: the provider takes the lease back at once.
func (r *Reader) try(ctx context.Context, addr string, from chunk.Peer, l *lease) error {
	q, err := r.connect(ctx, addr)
	if err != nil {
		return err
	}
	refs := make([]chunk.BlockRef, len(l.blocks))
	for i, b := range l.blocks {
		refs[i] = b.Ref
		r.cfg.Counters.Request()
	}
	asked := time.Now()
	rep, err := bounded(ctx, r.cfg.Stall, func(ctx context.Context) (reply, error) {
		return call(ctx, q, func() (reply, error) { return q.provider.lend(q, r.auth.Claim(from), refs) })
	})
	if err != nil {
		if ctx.Err() != nil || isStall(err) {
			q.provider.forget(q) // a lease may be on its way
		}
		return err
	}
	if err := r.take(ctx, q, from, rep, l); err != nil {
		q.provider.forget(q)
		return err
	}
	if time.Since(asked) >= rep.ttl {
		q.provider.forget(q)
		return fmt.Errorf("read under the lease: %w", errLeaseOver)
	}
	_, err = bounded(ctx, r.cfg.Stall, func(ctx context.Context) (struct{}, error) {
		return call(ctx, q, func() (struct{}, error) { return struct{}{}, q.provider.giveBack(q, rep.lease) })
	})
	return err
}

// take reads every block of a reply and checks it.
func (r *Reader) take(ctx context.Context, q *pair, from chunk.Peer, rep reply, l *lease) error {
	if rep.node != from.Node || rep.incarnation != from.Incarnation {
		return fmt.Errorf("%w: %s answered", chunk.ErrWrongNode, rep.node.Short())
	}
	if len(rep.blocks) != len(l.blocks) {
		return fmt.Errorf("%w: %d blocks for %d", chunk.ErrCorrupt, len(rep.blocks), len(l.blocks))
	}
	for i, d := range rep.blocks {
		if err := r.takeOne(ctx, q, d, &l.blocks[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) takeOne(ctx context.Context, q *pair, d descriptor, b *chunk.Received) error {
	if d.ref != b.Ref || d.len != b.Ref.Len {
		return fmt.Errorf("%w: %d bytes of block %d for %d bytes of block %d", chunk.ErrCorrupt, d.len, d.ref.Index, b.Ref.Len, b.Ref.Index)
	}
	if d.zero {
		*b = chunk.Received{Ref: b.Ref, Zero: true, Sum: chunk.Sum(make([]byte, d.len))}
		return nil
	}
	n, err := bounded(ctx, r.cfg.Stall, func(ctx context.Context) (int, error) { return readInto(ctx, q, d, b.Data) })
	r.cfg.Counters.Received(q.provider.cfg.Credentials.Self, int64(n))
	if err != nil {
		return err
	}
	if sum := chunk.Sum(b.Data); sum != d.sum {
		return fmt.Errorf("%w: sum %08x, declared %08x", chunk.ErrCorrupt, sum, d.sum)
	}
	b.Sum = d.sum
	return nil
}

// readInto runs a READ. To give one up, the connection goes to error first,
// and dst is free only once the READ has ended.
func readInto(ctx context.Context, q *pair, d descriptor, dst []byte) (n int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err = q.read(d, dst)
	}()
	select {
	case <-done:
		return n, err
	case <-ctx.Done():
		q.fail()
		<-done
		return n, context.Cause(ctx)
	}
}

// bounded gives f a bound on its time.
func bounded[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("%w for %v", chunk.ErrStalled, d))
	defer cancel()
	return f(ctx)
}

func isStall(err error) bool { return errors.Is(err, chunk.ErrStalled) }
