//go:build linux && cgo && rdma

package verbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// ReadLate takes a lease on a block, lets it run out, and READs all the same,
// over a connection that nothing on this side has ended. It returns how the
// READ ended, and the memory that it was to fill.
func ReadLate(ctx context.Context, c *Client, h *Handler, from chunk.Peer, ref chunk.BlockRef) (status int32, data []byte, err error) {
	p, err := c.peer(from, from.Addrs[Protocol])
	if err != nil {
		return 0, nil, err
	}
	if err := p.meet(ctx); err != nil {
		return 0, nil, err
	}
	k, err := c.join(ctx, from, p.addr, p.paths[0])
	if err != nil {
		return 0, nil, err
	}
	defer func() { // as a link ends
		k.start()
		k.fail(errLink)
	}()
	if err := k.control.send(ask{id: 1, refs: []chunk.BlockRef{ref}}); err != nil {
		return 0, nil, err
	}
	m, err := k.control.receive()
	if err != nil {
		return 0, nil, err
	}
	g, ok := m[0].(grant)
	if !ok {
		return 0, nil, fmt.Errorf("no grant but %+v", m)
	}
	for h.expired.Load() == 0 || Leases(h) > 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return 0, nil, errors.New("the lease does not run out")
		}
	}
	l, err := c.arena.Lend(ctx, []chunk.BlockRef{ref})
	if err != nil {
		return 0, nil, err
	}
	reads := c.pieces(nil, k, l.Slot(0), g.blocks[0])
	n, err := k.queue.Read(reads)
	if err != nil {
		return 0, nil, err
	}
	out := make([]ib.Done, n)
	for range n {
		k.room <- struct{}{}
	}
	m2, err := k.queue.Reap(out)
	if err != nil {
		return 0, nil, err
	}
	for range m2 {
		<-k.room
	}
	return out[0].Status, l.Blocks()[0].Data, nil
}
