package chunk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// result is what became of a flight.
type result struct {
	err    error         // nothing usable came
	took   time.Duration // of the transfer alone
	got    int64         // payload bytes that came over the network
	sum    uint32
	bound  bool    // a keeper vouches for sum
	buf    *buffer // the bytes, when they could not be stored
	putErr error
	stored bool // storing was tried and worked
}

// ErrDisowned: the bytes are not what a keeper says the block is.
var ErrDisowned = errors.New("a keeper declares another checksum")

// launch starts a flight that the policy decided on.
func (s *swarm) launch(f *flight) {
	var timeout time.Duration
	s.e.gate.with(f.peer.st, func() { timeout = f.peer.st.timeout() })
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	f.cancel = cancel
	if f.hedge {
		s.e.counts.hedges.Add(1)
	}
	check := s.checker(f)
	from, came := f.peer.Peer, s.watch(f)
	s.workers.Add(1)
	go func() {
		defer s.workers.Done()
		defer cancel()
		r := s.fetch(ctx, from, f.block, !f.spec, check, came)
		s.post(func(now time.Time) { s.landed(f, r, now) })
	}()
}

// fetch brings one block here: transfer, check, store. It runs outside the
// loop and holds the lent memory no longer than that takes. came is called now
// and then while bytes come, where the transport tells of them.
func (s *swarm) fetch(ctx context.Context, from Peer, block int, demand bool, check *checker, came func(n int)) (r result) {
	check.begin(ctx)
	defer check.stop()
	ref := s.o.Ref(block)
	ref.Demand = demand
	if streamer, st := s.stage(block); st != nil {
		r, again := s.stream(ctx, from, ref, check, streamer, st, came)
		if !again {
			return r
		}
		if s.file.Has(block) { // another flight was faster, and ended this one's writing
			r.stored = true
			return r
		}
	}
	start := time.Now()
	lease, err := s.e.cfg.Transport.Fetch(ctx, from, []BlockRef{ref})
	r.took = time.Since(start)
	if err != nil {
		r.err = fetchError(ctx, err)
		return r
	}
	defer lease.Release()
	got := lease.Blocks()
	if len(got) != 1 || got[0].Ref != ref || !got[0].Zero && int64(len(got[0].Data)) != ref.Len {
		r.err = fmt.Errorf("answer is not the block asked for: %w", ErrCorrupt)
		return r
	}
	b := got[0]
	r.got = int64(len(b.Data))
	r.sum, r.bound, r.err = check.end(ctx, b)
	if r.err == nil {
		s.store(block, b, &r)
	}
	return r
}

// store puts a block where it stays. When that fails its bytes are copied for
// those who wait: the lent memory must go back.
func (s *swarm) store(block int, b Received, r *result) {
	if time.Now().UnixNano() >= s.storeAt.Load() {
		if r.putErr = s.put(block, b); r.putErr == nil {
			r.stored = true
			return
		}
	}
	r.buf = s.e.ring.make(b.Ref.Len)
	if b.Zero {
		clear(r.buf.b)
	} else {
		copy(r.buf.b, b.Data)
	}
}

func (s *swarm) put(block int, b Received) error {
	if !b.Zero {
		return s.file.Put(block, b.Data, b.Sum)
	}
	one := NewBitmap(s.o.Blocks())
	one.Set(block)
	return s.file.PutZero(one)
}

// landed takes a flight off the board.
func (s *swarm) landed(f *flight, r result, now time.Time) {
	g, c := s.e.gate, &s.e.counts
	c.received.Add(r.got)
	s.tell(f, r, now)
	if r.bound {
		s.sums[f.block] = r.sum
	}
	if r.err != nil {
		g.release(f.peer.st, f.n, f.spec)
		s.board.end(f, false)
		s.failed(f, r.err, now)
		return
	}
	g.with(f.peer.st, func() { f.peer.st.good(now, r.got, r.took, s.e.cfg.Limits) })
	g.release(f.peer.st, f.n, f.spec)
	f.peer.lastErr = nil
	s.board.took.add(r.took)
	s.board.end(f, true)
	if s.board.have.Has(f.block) {
		c.duplicates.Add(1)
		if r.buf != nil {
			r.buf.release()
		}
		return
	}
	c.blocks.Add(1)
	if r.stored {
		s.kept(f.block, now)
		return
	}
	s.unkept(f.block, r, now)
}

// kept notes a block that is stored.
func (s *swarm) kept(block int, now time.Time) {
	delete(s.sums, block)
	abort(s.board.arrived(block))
	s.here.Store(s.board.bytes())
	s.present(block, nil, now)
	s.stores(now)
	if s.board.left == 0 {
		s.finish()
		return
	}
	if !s.told && s.board.chunkOf(block) {
		s.told = true
		s.e.herald.tell(s.o.Set, false)
	}
}

// stores notes that storing works.
func (s *swarm) stores(now time.Time) {
	s.putErr = nil
	if s.uncached.Swap(false) {
		s.adopt(false, now) // there may be a file only now, with more in it
	}
}

// unkept hands on a block that could not be stored. Nothing is fetched unasked
// from now on, until storing works again.
func (s *swarm) unkept(block int, r result, now time.Time) {
	s.e.counts.uncached.Add(1)
	if r.putErr != nil {
		s.putErr = fmt.Errorf("store block %d of object %s: %w", block, s.o.ID.Short(), r.putErr)
		s.storeAt.Store(now.Add(s.e.cfg.Limits.RetryCache).UnixNano())
		if !s.uncached.Swap(true) {
			s.e.log.Warn("storing blocks fails, reading goes on uncached", "object", s.o.ID.Short(), "err", r.putErr)
		}
		for w := range s.waiters {
			if w.all {
				s.settle(w, s.putErr)
			}
		}
	}
	abort(s.board.passed(block))
	s.present(block, r.buf, now)
	r.buf.release()
}

func abort(flights []*flight) {
	for _, f := range flights {
		f.lost = true
		f.cancel()
	}
}

// chunkOf reports whether every block of the chunk that block lies in is here.
func (b *board) chunkOf(block int) bool {
	n := b.o.ChunkBlocks()
	first := block / n * n
	for i := first; i < min(first+n, b.o.Blocks()); i++ {
		if !b.have.Has(i) {
			return false
		}
	}
	return true
}
