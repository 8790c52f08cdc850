package chunk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// ReadError says why a read ended without its bytes. It wraps Kind (one of
// ErrNoProvider, ErrStalled, ErrDamaged, ErrSourceChanged) and Locate.
type ReadError struct {
	Object ObjectID
	Block  int // the first that is absent
	Kind   error
	Waited time.Duration
	Locate error    // the registry's, when it does not answer
	Peers  []string // those known, each with its last error
}

// Error names the object, the block, and what each peer did.
func (e *ReadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "read block %d of object %s: %v", e.Block, e.Object.Short(), e.Kind)
	if e.Waited > 0 {
		fmt.Fprintf(&b, " after %v", e.Waited.Round(time.Millisecond))
	}
	if e.Locate != nil {
		fmt.Fprintf(&b, "; locate providers: %v", e.Locate)
	}
	if len(e.Peers) > 0 {
		fmt.Fprintf(&b, "; tried %s", strings.Join(e.Peers, ", "))
	}
	return b.String()
}

// Unwrap returns Kind and Locate.
func (e *ReadError) Unwrap() []error {
	if e.Locate == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Locate}
}

// failed draws the conclusions from a flight that brought nothing.
func (s *swarm) failed(f *flight, err error, now time.Time) {
	p, g := f.peer, s.e.gate
	if s.ctx.Err() != nil || f.lost {
		if f.late {
			g.with(p.st, func() { p.st.fail(now, errLate, false) })
		}
		return
	}
	switch s.board.blame(f, err, now, g) {
	case asIs:
		return
	case damage:
		s.damaged(f.block, err)
	case demoted:
		s.e.counts.demoted.Add(1)
	case stranger:
		s.disc.hurry()
	}
	s.e.counts.failures.Add(1)
	s.e.log.Debug("fetching a block failed", "object", s.o.ID.Short(), "block", f.block, "peer", p.label(), "err", err)
}

// verdict is what follows from a failed flight beyond the peer's standing.
type verdict int

const (
	failure  verdict = iota
	asIs             // no failure: the peer does not have the block, or no time for it
	damage           // two contents were seen
	demoted          // it lied
	stranger         // it is another node by now
)

// blame notes what a failed flight says of its peer.
func (b *board) blame(f *flight, err error, now time.Time, g *gate) verdict {
	p := f.peer
	var busy *Busy
	if errors.As(err, &busy) {
		if busy.Sending {
			b.later[f.block] = later{p, now.Add(busy.Retry)}
			p.tally.send(f.block, 1)
		} else {
			g.with(p.st, func() { p.st.full(now, busy.Retry) })
		}
		g.with(p.st, func() { p.st.answer(now) })
		return asIs
	}
	p.lastErr = err
	switch {
	case errors.Is(err, ErrNotHeld):
		p.lacks(f.block)
		g.with(p.st, func() { p.st.answer(now) })
		return asIs
	case errors.Is(err, ErrSourceChanged):
		p.exclude(err, now)
		g.with(p.st, func() { p.st.answer(now) })
	case errors.Is(err, ErrDamaged):
		return damage
	case errors.Is(err, ErrDisowned):
		p.exclude(err, now)
		g.with(p.st, func() { p.st.lied(now, err) })
		return demoted
	case errors.Is(err, context.DeadlineExceeded):
		g.with(p.st, func() {
			p.st.timeouts++
			p.st.fail(now, err, false)
		})
	case errors.Is(err, ErrWrongNode):
		p.exclude(err, now)
		g.with(p.st, func() { p.st.fail(now, err, true) })
		return stranger
	case errors.Is(err, ErrStalled):
		g.with(p.st, func() { p.st.fail(now, err, !p.talks && !p.st.live(now, LongestTurn)) })
	default:
		g.with(p.st, func() { p.st.fail(now, err, !errors.Is(err, ErrCorrupt)) })
	}
	return failure
}

// errLate is why a peer whose block another one brought is given a rest.
var errLate = errors.New("block came too late")

// damaged ends the waits for a block of which two contents were seen.
func (s *swarm) damaged(block int, err error) {
	if !s.board.damaged[block] {
		s.e.log.Error("a keeper contradicts what was bound", "object", s.o.ID.Short(), "block", block, "err", err)
	}
	s.board.damaged[block] = true
	for w := range s.waiters {
		if w.all || block >= w.first && block < w.end {
			s.settle(w, s.failure(block, ErrDamaged, 0))
		}
	}
	delete(s.wants, block)
	s.board.unqueue(block)
}

// expire ends the waits that have been without progress for too long, and at
// once those for a registered source that has changed where nobody else has
// the block.
func (s *swarm) expire(now time.Time) {
	if len(s.waiters) == 0 {
		return
	}
	changed, looked := s.changed(), false
	live := sync.OnceValue(func() bool { return s.e.gate.live(s.board.peers, now, s.e.cfg.Limits.Stall) })
	for w := range s.waiters {
		kind := s.verdictOn(w, changed, live, now)
		if kind != nil && !looked { // nobody is told that something is absent that is here
			s.adopt(true, now)
			looked = true
			if _, waits := s.waiters[w]; !waits {
				continue
			}
			kind = s.verdictOn(w, changed, live, now)
		}
		if kind == nil {
			continue
		}
		if !errors.Is(kind, ErrSourceChanged) {
			s.gaveUpAfter(now.Sub(w.base)+w.spent, now)
		}
		s.settle(w, s.failure(s.lacking(w), kind, now.Sub(w.base)))
	}
}

// verdictOn returns why a wait has to end now; nil if it goes on. live says
// whether any provider is.
func (s *swarm) verdictOn(w *waiter, changed bool, live func() bool, now time.Time) error {
	l, idle := s.e.cfg.Limits, now.Sub(w.base)+w.spent
	switch {
	case changed && !s.disc.locating && !s.board.holder(s.lacking(w)):
		return ErrSourceChanged
	case idle >= l.NoProvider && !live():
		return ErrNoProvider
	case idle >= l.Stall:
		return ErrStalled
	}
	return nil
}

// gaveUpAfter notes a wait that ended without its bytes.
func (s *swarm) gaveUpAfter(idle time.Duration, now time.Time) { s.gaveUp, s.gaveUpIn = now, idle }

// again returns how long a wait that begins now counts as having waited. The
// kernel answers a failed read-ahead by asking once more for the page that a
// reader waits for, and a page fault several times: the bound of a read would
// be a multiple of itself. What is asked right after a failure, with no byte
// in between, gets a second chance only.
func (s *swarm) again(now time.Time) time.Duration {
	if s.gaveUp.IsZero() || now.Sub(s.gaveUp) > againWithin {
		return 0
	}
	return max(min(s.gaveUpIn, s.e.cfg.Limits.NoProvider)-secondChance, 0)
}

// changed reports whether any peer's registered source has changed.
func (s *swarm) changed() bool {
	for _, p := range s.board.peers {
		if errors.Is(p.out, ErrSourceChanged) {
			return true
		}
	}
	return false
}

// forgive lets peers whose source had changed, or that were another node, be
// asked again by a new read: things may be what they were.
func (s *swarm) forgive(now time.Time) {
	for _, p := range s.board.peers {
		again := errors.Is(p.out, ErrSourceChanged) || errors.Is(p.out, ErrWrongNode)
		if again && now.Sub(p.outAt) >= firstBackoff {
			p.out = nil
		}
	}
}

// lacking returns the first block that a waiter still waits for.
func (s *swarm) lacking(w *waiter) int {
	if w.all {
		return max(s.board.firstAbsent(), 0)
	}
	for i := w.first; i < w.end; i++ {
		if !s.board.have.Has(i) && w.parts[i] == nil {
			return i
		}
	}
	return w.first
}

func (s *swarm) failure(block int, kind error, waited time.Duration) error {
	e := &ReadError{Object: s.o.ID, Block: block, Kind: kind, Waited: waited, Locate: s.disc.locateErr}
	if len(s.board.peers) == 0 && e.Locate == nil && s.disc.locating {
		e.Locate = errSilent
	}
	for _, p := range s.board.peers {
		if len(e.Peers) == 8 {
			e.Peers = append(e.Peers, fmt.Sprintf("and %d more", len(s.board.peers)-8))
			break
		}
		e.Peers = append(e.Peers, p.label()+p.state(block))
	}
	return e
}

var errSilent = errors.New("the registry has not answered")

func (p *peer) label() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Node.Short()
}

func (p *peer) state(block int) string {
	switch {
	case p.out != nil:
		return " (" + p.out.Error() + ")"
	case p.lastErr != nil:
		return " (" + p.lastErr.Error() + ")"
	case p.news && !p.have.Has(block):
		return " (does not have it)"
	default:
		return " (no answer)"
	}
}
