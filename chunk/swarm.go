package chunk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// swarm brings one object here, for all of its readers. One goroutine, run,
// owns its state; others speak to it by post and notice, which never block.
type swarm struct {
	e      *Engine
	o      Object
	ctx    context.Context // its own lifetime
	cancel context.CancelFunc

	opened  chan struct{} // closed once file or openErr is set
	file    File
	openErr error
	gone    atomic.Bool   // the file is closed, or about to be
	ended   chan struct{} // closed when the loop has ended

	reads    *reads
	ramped   atomic.Bool   // all of it is wanted: reads need not be counted
	complete atomic.Bool   // every block is here
	done     chan struct{} // closed with it
	uncached atomic.Bool   // the ring may have blocks of it
	storeAt  atomic.Int64  // unix ns before which storing is not tried
	here     atomic.Int64  // bytes that are here

	wake  chan struct{}
	mu    sync.Mutex
	inbox []func(now time.Time)
	moved []int // blocks that readers went on to

	readers int       // guarded by e.mu
	unread  time.Time // guarded by e.mu; when the last reader left

	// What follows belongs to the loop.
	board     *board
	seat      seat
	workers   sync.WaitGroup
	waiters   map[*waiter]struct{}
	wants     map[int]*want
	alls      int       // waiters for the whole object
	allsUntil time.Time // whole for a while after the last of them left
	read      bool      // enough was read: whole from now on
	sums      map[int]uint32
	most      map[int]int64 // bytes that one request has brought of a block that is waited for
	told      bool          // a whole chunk was announced
	putErr    error
	gaveUp    time.Time     // when a wait last ended without its bytes, and none came since
	gaveUpIn  time.Duration // how long it had waited
	disc      discovery
}

// want is a block that is waited for, or was a moment ago.
type want struct {
	waiters []*waiter
	until   time.Time // when none is left: kept in flight until then
}

func newSwarm(e *Engine, o Object) *swarm {
	s := &swarm{
		e: e, o: o,
		opened: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{}),
		reads:   newReads(o),
		wake:    make(chan struct{}, 1),
		moved:   make([]int, 0, 64),
		waiters: map[*waiter]struct{}{},
		wants:   map[int]*want{},
		sums:    map[int]uint32{},
		most:    map[int]int64{},
	}
	s.ctx, s.cancel = context.WithCancel(e.ctx)
	s.seat.wake = s.poke
	return s
}

// poke makes the loop look around.
func (s *swarm) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// post has the loop call f. After the loop has ended, nothing does.
func (s *swarm) post(f func(now time.Time)) {
	s.mu.Lock()
	s.inbox = append(s.inbox, f)
	s.mu.Unlock()
	s.poke()
}

// notice tells the loop where a reader has gone. Some may be lost when many
// come at once: they only steer read-ahead.
func (s *swarm) notice(block int) {
	s.mu.Lock()
	if len(s.moved) < cap(s.moved) {
		s.moved = append(s.moved, block)
	}
	s.mu.Unlock()
	s.poke()
}

// run opens the file and lives until nobody needs the swarm or the engine is
// closed.
func (s *swarm) run() {
	defer s.e.wg.Done()
	defer close(s.ended)
	defer s.cancel()
	if !s.open() {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			s.end()
			return
		case <-s.wake:
		case <-timer.C:
		}
		now := time.Now()
		s.drain(now)
		s.step(now)
		if s.over(now) {
			s.end()
			return
		}
		if d := s.pause(now); d > 0 {
			timer.Reset(d)
		} else {
			timer.Stop()
		}
	}
}

func (s *swarm) open() bool {
	s.file, s.openErr = s.e.cfg.Store.Open(s.ctx, s.o)
	if errors.Is(s.openErr, ErrNoSpace) {
		s.homeless()
	}
	if s.openErr != nil {
		s.e.mu.Lock()
		s.e.drop(s)
		s.e.mu.Unlock()
		close(s.opened)
		return false
	}
	s.board = newBoard(s.o, s.file.Have(), s.e.cfg.Limits, s.e.rng(s.o))
	s.board.inZone(s.e.cfg.Self, s.e.cfg.Zone)
	s.here.Store(s.board.bytes())
	if s.file.Complete() {
		s.complete.Store(true)
		close(s.done)
	}
	close(s.opened)
	return true
}

// homeless goes on without a local file, until the store can make one.
func (s *swarm) homeless() {
	s.e.log.Warn("no local file can be made, reading goes on uncached", "object", s.o.ID.Short(), "err", s.openErr)
	s.putErr = fmt.Errorf("make a local file of object %s: %w", s.o.ID.Short(), s.openErr)
	s.uncached.Store(true)
	s.storeAt.Store(time.Now().Add(s.e.cfg.Limits.RetryCache).UnixNano())
	s.file, s.openErr = newLateFile(s.ctx, s.e.cfg.Store, s.o), nil
}

// drain runs what was posted.
func (s *swarm) drain(now time.Time) {
	s.mu.Lock()
	inbox := s.inbox
	s.inbox = nil
	moved := append([]int(nil), s.moved...)
	s.moved = s.moved[:0]
	s.mu.Unlock()
	w := s.e.cfg.Limits.window(s.o)
	for _, b := range moved {
		s.board.streams.touch(b, w)
	}
	for _, f := range inbox {
		f(now)
	}
}

// step does what is due.
func (s *swarm) step(now time.Time) {
	if s.complete.Load() {
		return
	}
	s.ramp(now)
	s.linger(now)
	s.expire(now)
	if s.complete.Load() { // what was missed is in the file
		return
	}
	s.discover(now)
	s.board.held = s.uncached.Load() || s.disc.zeros == zerosAsked || s.e.cfg.NoPrefetch && s.alls == 0
	var flights []*flight
	s.e.gate.round(&s.seat, func(in intake) { flights = s.board.plan(now, in) })
	for _, f := range flights {
		s.launch(f)
	}
}

// ramp takes note of how much was read.
func (s *swarm) ramp(now time.Time) {
	b := s.board
	b.distinct = s.reads.distinct.Load()
	if !s.read && !s.e.cfg.NoPrefetch && b.distinct >= s.e.cfg.Limits.wholeAfter(s.o) {
		s.read = true
		s.ramped.Store(true)
		if on := s.e.cfg.OnWhole; on != nil {
			on(s.o)
		}
	}
	b.whole = s.read || s.alls > 0 || now.Before(s.allsUntil)
	if s.alls > 0 && s.disc.zeros != zerosAsked && len(b.flights) == 0 && len(b.queue) == 0 {
		// Whoever gets all of it is not left to the back-offs of peers.
		if i := b.absentee(); i >= 0 {
			s.wants[i] = &want{until: now.Add(s.e.cfg.Limits.Grace)}
			b.demand(i)
		}
	}
}

// finish notes that the last block has come.
func (s *swarm) finish() {
	if s.complete.Load() {
		return
	}
	s.complete.Store(true)
	close(s.done)
	s.disc.stop()
	s.e.gate.round(&s.seat, func(intake) {}) // leave the line
	s.e.herald.tell(s.o.Set, true)
	if f := s.e.cfg.OnComplete; f != nil {
		f(s.o)
	}
}

// pause returns how long nothing needs doing unless something happens; 0 is
// for ever.
func (s *swarm) pause(now time.Time) time.Duration {
	switch {
	case s.complete.Load():
	case len(s.waiters) > 0 || len(s.board.flights) > 0:
		if at := s.board.wakeAt(now); !at.IsZero() {
			return max(min(activeTick, at.Sub(now)), time.Millisecond)
		}
		return activeTick
	case s.needed(now) || len(s.wants) > 0 || s.disc.following > 0:
		return idleTick
	}
	if t := s.e.unread(s); !t.IsZero() {
		return max(t.Add(s.e.cfg.Limits.Grace).Sub(now), time.Millisecond)
	}
	return 0
}

// over reports whether nobody has needed the swarm for the grace period; it is
// then out of the engine.
func (s *swarm) over(now time.Time) bool {
	if len(s.waiters) > 0 {
		return false
	}
	t := s.e.unread(s)
	if t.IsZero() {
		return false
	}
	// A complete object has nothing to go on with, and its file may be
	// dropped: a later reader must not find the one that is gone.
	return (s.complete.Load() || now.Sub(t) >= s.e.cfg.Limits.Grace) && s.e.retire(s)
}

// end stops what is under way and closes the file.
func (s *swarm) end() {
	s.e.mu.Lock()
	s.e.drop(s)
	s.e.mu.Unlock()
	s.gone.Store(true)
	s.cancel()
	s.disc.stop()
	s.e.gate.forget(&s.seat) // those behind do not wait for the flights to end
	s.workers.Wait()
	s.drain(time.Now()) // flights give back their places
	for w := range s.waiters {
		s.settle(w, ErrClosed)
	}
	s.e.ring.forget(s.o.ID)
	if err := s.file.Close(); err != nil {
		s.e.log.Warn("closing the file of an object failed", "object", s.o.ID.Short(), "err", err)
	}
}
