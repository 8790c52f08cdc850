package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// lend is the control call for a lease on some blocks, all of them or none.
func (p *Provider) lend(q *pair, claim rdma.Claim, refs []chunk.BlockRef) (reply, error) {
	if p.cfg.Fault == HangAtOnce {
		<-q.dead
		return reply{}, errPair
	}
	from, err := p.auth.Verify(rdma.Request{Claim: claim})
	if err != nil {
		p.cfg.Counters.Refused()
		return reply{}, err
	}
	if len(refs) > maxRefs {
		return reply{}, fmt.Errorf("%w: %d blocks in one call", chunk.ErrRefused, len(refs))
	}
	g := &grant{pair: q, to: from}
	blocks, err := p.load(g, refs)
	if err != nil {
		p.cfg.Counters.ServeFailed()
		return reply{}, errors.Join(err, p.takeBack(g))
	}
	id, err := p.grant(g)
	if err != nil {
		return reply{}, errors.Join(err, p.takeBack(g))
	}
	r := reply{
		node: p.cfg.Credentials.Self, incarnation: p.cfg.Credentials.Incarnation,
		lease: id, ttl: p.cfg.TTL, blocks: blocks,
	}
	p.lendFault(&r)
	return r, nil
}

// load brings the blocks into registered memory. It waits for all the slots
// together: two calls that each held some would wait for one another.
func (p *Provider) load(g *grant, refs []chunk.BlockRef) ([]descriptor, error) {
	out := make([]descriptor, len(refs))
	var sizes []int64
	for i, ref := range refs {
		b, err := p.cfg.Source.Block(g.pair.ready, ref.Object, ref.Index)
		if err != nil {
			return nil, err
		}
		g.blocks = append(g.blocks, b)
		ref.Len = b.Len
		out[i] = descriptor{ref: ref, len: b.Len, sum: b.Sum, zero: b.Zero}
		if !b.Zero {
			sizes = append(sizes, b.Len)
		}
	}
	var err error
	if g.slots, err = p.arena.Acquire(g.pair.ready, sizes...); err != nil {
		return nil, fmt.Errorf("get memory: %w", err)
	}
	slots := g.slots
	for i, b := range g.blocks {
		if b.Zero {
			continue
		}
		if err := p.loadOne(slots[0], b); err != nil {
			return nil, fmt.Errorf("load block %d of %s: %w", out[i].ref.Index, out[i].ref.Object.Short(), err)
		}
		out[i].addr, out[i].key = p.nic.addressOf(slots[0])
		slots = slots[1:]
	}
	return out, nil
}

func (p *Provider) loadOne(s rdma.Slot, b chunk.Block) error {
	return p.nic.write(func() error {
		_, err := b.File.ReadAt(s.Data, b.Off)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
}

// grant makes the lease known and starts its time.
func (p *Provider) grant(g *grant) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || g.pair.failed() {
		return 0, errPair
	}
	p.last++
	id := p.last
	p.grants[id] = g
	g.timer = time.AfterFunc(p.cfg.TTL, func() { p.expire(id) })
	return id, nil
}

// expire costs the reader its connection: its READs end before the slots can
// be lent again.
func (p *Provider) expire(id uint64) {
	p.mu.Lock()
	g := p.grants[id]
	p.mu.Unlock()
	if g != nil {
		p.forget(g.pair)
	}
}

// giveBack is the control call that ends a lease. Its error means that the
// bytes read under the lease are not to be used.
func (p *Provider) giveBack(q *pair, id uint64) error {
	p.mu.Lock()
	g := p.grants[id]
	if g == nil || g.pair != q {
		p.mu.Unlock()
		return errLeaseOver
	}
	delete(p.grants, id)
	p.mu.Unlock()
	for _, s := range g.slots {
		p.cfg.Counters.Sent(g.to, int64(len(s.Data)))
	}
	if err := p.takeBack(g); err != nil {
		p.cfg.Counters.ServeFailed()
		return err
	}
	for range g.blocks {
		p.cfg.Counters.Served()
	}
	return nil
}

// call runs a control call on the provider, and leaves it behind when ctx
// ends or the connection fails.
func call[T any](ctx context.Context, q *pair, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var none T
	if !q.provider.enter() {
		return none, errPair
	}
	done := make(chan result, 1)
	go func() {
		defer q.provider.calls.Done()
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-q.dead:
		return none, errPair
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

func (p *Provider) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.calls.Add(1)
	return true
}
