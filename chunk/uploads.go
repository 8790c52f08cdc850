package chunk

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrBusy: the peer has enough to send, or sends that block to somebody else
// just now. It lives and is not to be blamed; see Busy.
var ErrBusy = errors.New("peer is busy")

// Busy is the error of a peer that answered ErrBusy.
type Busy struct {
	// Retry is when asking again is worth while.
	Retry time.Duration
	// Sending says that the block goes to another node right now, which can
	// be asked for it soon; other blocks may be had here.
	Sending bool
}

// Error says which of the two it is.
func (b *Busy) Error() string {
	if b.Sending {
		return fmt.Sprintf("%v: the block is being sent to another node, for %v", ErrBusy, b.Retry)
	}
	return fmt.Sprintf("%v for %v", ErrBusy, b.Retry)
}

// Unwrap makes it an ErrBusy.
func (b *Busy) Unwrap() error { return ErrBusy }

// Amounts of what a node sends.
const (
	firstUploads = 2  // at once, before anything is known of the link
	usualUploads = 4  // at once, where the others take what this node's link gives
	mostUploads  = 16 // at once, on the fastest
	uploadQueue  = 2  // requests that wait for their turn, so that the link never idles
	demandQueue  = 8  // the same for blocks that somebody waits for
	// uploadAhead is how much time's worth of blocks is sent at once: few at
	// once means that the first of them is soon where it can be handed on.
	uploadAhead = 40 * time.Millisecond
	// slowStart is how long the first sends may take before one more is begun: it
	// may be the receivers that are slow.
	slowStart = time.Second
	// enoughLoad is how many links' worth of sends are begun: n that share a
	// full link, begun one after the other, count as 1 + ln n. Chosen, with
	// firstUploads and mostFlights, by simulating 7 to 31 receivers.
	enoughLoad = 2.15
	minRetry   = 5 * time.Millisecond
	firstRetry = 50 * time.Millisecond // before anything is known of the link
	maxRetry   = 2 * time.Second
)

// Uploads decides which requests of other nodes are served when. A node that
// sent to everybody at once would give each of them a trickle, and the first
// block would be whole somewhere only when all of them are; so a few are served
// at a time, a few wait, and the rest are told to ask elsewhere. While a block
// goes to one node, the others are told so: they get it from there.
//
// It is plain code: requests in, decisions out, the time passed in. Not safe
// for concurrent use; the zero value is ready.
type Uploads struct {
	sending []*Upload
	waiting []*Upload     // oldest first, demand before the rest
	took    time.Duration // of a send, lately
	pace    pace
}

// pace measures how long this node's link takes for one block when nothing but
// the link holds it back: the best of stretches of a few blocks sent without a
// pause.
type pace struct {
	since time.Time // the stretch began; zero: nothing is being sent
	n     int
	best  time.Duration // a block
}

// stretch is how many blocks are measured together: sends that go on side by
// side end in clusters.
const stretch = 4

// end notes that a block has left; idle: nothing else is being sent.
func (p *pace) end(now time.Time, idle bool) {
	if p.n++; p.n == stretch {
		each := max(now.Sub(p.since)/stretch, time.Microsecond)
		if p.best == 0 || each < p.best {
			p.best = each
		} else {
			p.best += p.best / 64 // links change
		}
		p.since, p.n = now, 0
	}
	if idle {
		p.since, p.n = time.Time{}, 0
	}
}

// begin notes that something is being sent from now on.
func (p *pace) begin(now time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
}

// Upload is one request, from when it is taken to when its bytes have left.
type Upload struct {
	Object ObjectID
	Block  int
	From   NodeID
	Demand bool // somebody there waits for it
	Whole  bool // all of the object is here: whoever is refused this block can ask for another

	started time.Time // zero: it waits
}

// Sending reports whether it was its turn.
func (u *Upload) Sending() bool { return !u.started.IsZero() }

// Ask takes a request in, to be sent at once if r.Sending is true then, later
// if not; a *Busy says that it was not taken.
func (s *Uploads) Ask(r *Upload, now time.Time) error {
	full := !s.room(now) && len(s.waiting) >= uploadQueue
	if other := s.same(r, now); other != nil && r.Whole && !full {
		return &Busy{Retry: s.retry(s.rest(other, now)), Sending: true}
	}
	switch {
	case s.room(now) && !s.early(r) && !s.ready():
		s.send(r, now)
	case !r.Demand && len(s.waiting) < uploadQueue:
		s.waiting = append(s.waiting, r)
	case r.Demand && len(s.waiting) < demandQueue:
		at := slices.IndexFunc(s.waiting, func(w *Upload) bool { return !w.Demand })
		if at < 0 {
			at = len(s.waiting)
		}
		s.waiting = slices.Insert(s.waiting, at, r)
	default:
		return &Busy{Retry: s.retry(s.pace.best * time.Duration(1+len(s.waiting)))}
	}
	return nil
}

// early reports whether a request should wait although there is room: while nothing
// is known of the link, one node is sent one block at a time. At the start of a
// crowd the first block is then soon where it can be handed on, and the second
// place goes to another node; the first one may be slow.
func (s *Uploads) early(r *Upload) bool { return s.pace.best == 0 && s.to(r.From) > 0 }

// ready reports whether any request waits for room alone.
func (s *Uploads) ready() bool {
	return slices.ContainsFunc(s.waiting, func(w *Upload) bool { return !s.early(w) })
}

// Waiting reports whether any request waits for its turn.
func (s *Uploads) Waiting() bool { return len(s.waiting) > 0 }

// Done notes that a request was served, failed, or that whoever waited has
// gone. Those that are sent now are returned.
func (s *Uploads) Done(r *Upload, now time.Time) (next []*Upload) {
	if i := slices.Index(s.waiting, r); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return nil
	}
	i := slices.Index(s.sending, r)
	if i < 0 {
		return nil
	}
	s.sending = slices.Delete(s.sending, i, i+1)
	s.measure(now.Sub(r.started), now)
	return s.Next(now)
}

// Next returns those whose turn has come. Done asks it; it is worth asking now
// and then while requests wait, since a send to a slow node stops counting.
func (s *Uploads) Next(now time.Time) (next []*Upload) {
	for len(s.waiting) > 0 && s.room(now) {
		i := slices.IndexFunc(s.waiting, func(w *Upload) bool { return s.to(w.From) == 0 })
		if i < 0 && s.early(s.waiting[0]) {
			break
		}
		i = max(i, 0)
		w := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.send(w, now)
		next = append(next, w)
	}
	return next
}

func (s *Uploads) send(r *Upload, now time.Time) {
	r.started = now
	s.sending = append(s.sending, r)
	s.pace.begin(now)
}

// NextAt returns when Next is worth asking although nothing was Done; zero if
// nothing waits.
func (s *Uploads) NextAt() (at time.Time) {
	if len(s.waiting) == 0 || s.pace.best == 0 || len(s.sending) >= mostUploads {
		return time.Time{}
	}
	for _, u := range s.sending {
		if t := u.started.Add(s.fair()); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// to returns how many are being sent to a node.
func (s *Uploads) to(node NodeID) (n int) {
	for _, u := range s.sending {
		if u.From == node {
			n++
		}
	}
	return n
}

// measure learns from a send that ended.
func (s *Uploads) measure(took time.Duration, now time.Time) {
	s.pace.end(now, len(s.sending) == 0 && len(s.waiting) == 0)
	if s.took == 0 {
		s.took = took
	}
	s.took += (took - s.took) / 8
}

// room reports whether one more may be sent: while those under way cannot fill
// this node's link. A send that has gone on for so many times as long as a block
// takes alone has had that part of the link at most; one that has just begun may
// have all of it. So a node that has the link to itself sends few blocks, each
// of which is soon where it can be handed on, and one whose receivers have
// others to listen to sends more.
func (s *Uploads) room(now time.Time) bool {
	if s.pace.best == 0 {
		return len(s.sending) < firstUploads+s.stuck(now)
	}
	load := 0.0
	for _, u := range s.sending {
		load += min(1, float64(s.pace.best)/float64(max(now.Sub(u.started), 1)))
	}
	return load < enoughLoad+float64(uploadAhead)/float64(s.pace.best) && len(s.sending) < mostUploads
}

// stuck returns how many sends more than the usual are begun while nothing is
// known of the link, since the first ones take so long.
func (s *Uploads) stuck(now time.Time) int {
	if len(s.sending) == 0 {
		return 0
	}
	return min(int(now.Sub(s.sending[0].started)/slowStart), usualUploads)
}

// slow reports whether a send has taken far longer than its share of this
// node's link would: the other end holds it back.
func (s *Uploads) slow(u *Upload, now time.Time) bool {
	return s.pace.best > 0 && now.Sub(u.started) >= s.fair()
}

// fair returns how long a send may take before it counts as held back.
func (s *Uploads) fair() time.Duration {
	return 5 * s.pace.best * time.Duration(s.slots())
}

// slots returns about how many are sent at once: more where blocks are quick,
// since asking for the next would cost more than sending it.
func (s *Uploads) slots() int {
	if s.pace.best == 0 {
		return usualUploads
	}
	return min(usualUploads+int(uploadAhead/s.pace.best), mostUploads)
}

// same returns the request of another node for the same block that is being
// sent, or waits to be. One that takes long goes to a node from which nobody
// would have it soon.
func (s *Uploads) same(r *Upload, now time.Time) *Upload {
	for _, u := range s.sending {
		if u.Block == r.Block && u.Object == r.Object && u.From != r.From && !s.slow(u, now) {
			return u
		}
	}
	for _, u := range s.waiting {
		if u.Block == r.Block && u.Object == r.Object && u.From != r.From {
			return u
		}
	}
	return nil
}

// rest estimates how long until the block has been sent.
func (s *Uploads) rest(u *Upload, now time.Time) time.Duration {
	if !u.Sending() {
		return s.took + s.pace.best
	}
	return s.took - now.Sub(u.started)
}

// retry returns when asking again is worth while, d from now for all that is
// known.
func (s *Uploads) retry(d time.Duration) time.Duration {
	if s.pace.best == 0 {
		return firstRetry
	}
	return min(max(d, minRetry), maxRetry)
}
