package tcp

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// Fetch implements chunk.Transport. It waits for memory first, then for its
// turn at the peer; the blocks of one call travel side by side. A block that
// is zero has no Data, and the Sum of that many zero bytes. Peers without an
// address for this transport, and more blocks than Memory holds
// (rdma.ErrTooLarge), are refused at once.
func (c *Client) Fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (chunk.Lease, error) {
	var l *rdma.Lent
	err := c.during(ctx, from, refs, func(ctx context.Context) (err error) {
		l, err = c.fetch(ctx, from, refs)
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// during runs one fetch, which ends with ctx and with the client, and says in
// its error what was fetched.
func (c *Client) during(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef, fetch func(context.Context) error) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.busy.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(chunk.ErrClosed) })()
	err := fetch(ctx)
	if err == nil {
		return nil
	}
	if c.life.Err() != nil {
		err = chunk.ErrClosed // whichever wait it was that Close ended first
	}
	return fmt.Errorf("fetch %s from %s: %w", rdma.DescribeRefs(refs), rdma.DescribePeer(from), err)
}

func (c *Client) fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (*rdma.Lent, error) {
	addr, err := rdma.Address(from, Protocol)
	if err != nil {
		return nil, err
	}
	l, err := c.arena.Lend(ctx, refs)
	if err != nil {
		return nil, err
	}
	if err := c.fetchAll(ctx, target{peer: from, addr: addr, claim: c.cfg.Auth.Claim(from)}, l); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// fetchAll fills every block of the lease; no byte is written to it any more
// once it returns.
func (c *Client) fetchAll(ctx context.Context, t target, l *rdma.Lent) error {
	if len(l.Blocks()) == 1 {
		return c.fetchOne(ctx, t, &l.Blocks()[0], into(l.Blocks()[0].Data))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.cfg.ConnsPerPeer)
	for i := range l.Blocks() {
		g.Go(func() error { return c.fetchOne(ctx, t, &l.Blocks()[i], into(l.Blocks()[i].Data)) })
	}
	return g.Wait()
}

func (c *Client) fetchOne(ctx context.Context, t target, b *chunk.Received, take sink) error {
	leave, err := c.gates.enter(ctx, t.addr)
	if err != nil {
		return err
	}
	defer leave()
	c.cfg.Counters.Request()
	if err = c.get(ctx, t, b, take); err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, chunk.ErrBusy) {
		return err
	}
	c.cfg.Counters.Failed(errors.Is(err, chunk.ErrCorrupt))
	return err
}
