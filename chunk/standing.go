package chunk

import (
	"slices"
	"time"
)

// standing is what this node knows of another one over all objects. It is
// guarded by the gate's mutex; times are passed in.
type standing struct {
	*vital

	until  time.Time // nothing is asked before
	busy   time.Time // the same: it had enough to send, and is not to blame
	banned time.Time // nothing at all before: it lied

	node        NodeID
	name        string
	incarnation uint64

	typical  time.Duration
	busies   int // how often in a row it said that it was busy
	failedAt time.Time
	answered time.Time // when anything last came from it
	dead     bool      // the last thing it did was to fail outright
	timeouts int

	received int64
	blocks   int64
	lastErr  error
}

// vital is the part of a standing that every plan looks at, of each peer: those of
// nodes that became known one after the other lie side by side in memory.
type vital struct {
	flights int       // blocks asked for and not here yet
	share   int       // how many of those it is given
	rate    float64   // bytes per second, all flights together; 0: unknown
	strikes int       // failures in a row
	open    time.Time // the latest of until, busy and banned
}

// vitals is how many are allocated together.
const vitals = 16

// usable reports whether the peer may be asked now.
func (st *standing) usable(now time.Time) bool {
	return !now.Before(st.until) && !now.Before(st.banned)
}

// ready reports whether it is both usable and free.
func (st *vital) ready(now time.Time) bool { return !now.Before(st.open) }

// reopen works out from when on it is ready.
func (st *standing) reopen() {
	st.open = st.until
	if st.busy.After(st.open) {
		st.open = st.busy
	}
	if st.banned.After(st.open) {
		st.open = st.banned
	}
}

// free reports whether the peer may have a place for one more request.
func (st *standing) free(now time.Time) bool { return !now.Before(st.busy) }

// probe reports whether the peer may be asked for want of any other: not more
// often than once in a while, whatever its back-off.
func (st *standing) probe(now time.Time) bool {
	return st.flights == 0 && now.Sub(st.failedAt) >= firstBackoff && !now.Before(st.banned)
}

// live reports whether the peer answered within d and has not failed since.
func (st *standing) live(now time.Time, d time.Duration) bool {
	return !st.dead && !st.answered.IsZero() && now.Sub(st.answered) < d
}

func (st *vital) room(speculative bool) bool {
	if speculative {
		return st.flights < st.share
	}
	return st.flights < st.share+demandExtra
}

// answer notes that anything came from the peer.
func (st *standing) answer(now time.Time) {
	st.answered, st.dead = now, false
}

// good notes n bytes that took d. A peer whose blocks take next to no time
// gets more at once: otherwise asking would cost more than sending. One whose
// blocks take long gets fewer: side by side they only delay each other.
func (st *standing) good(now time.Time, n int64, d time.Duration, l Limits) {
	st.answer(now)
	st.strikes, st.timeouts, st.until = 0, 0, time.Time{}
	st.reopen()
	st.busies = 0
	st.received += n
	st.blocks++
	d = max(d, time.Microsecond)
	r := float64(n) * float64(max(st.flights, 1)) / d.Seconds()
	if st.rate == 0 {
		st.rate, st.typical = r, d
	} else {
		st.rate += (r - st.rate) / 4
		st.typical += (d - st.typical) / 4
	}
	switch {
	case d > slowBlock:
		st.share = max(1, st.share-1)
	case st.share < l.PerPeer:
		st.share++
	case d < 5*time.Millisecond:
		st.share = min(st.share+1, l.PerPeerMax)
	case d > 100*time.Millisecond && st.share > l.PerPeer:
		st.share--
	}
}

// fail notes a failure: nothing for a second, then two, up to half a minute.
// Flights that fail together count once.
func (st *standing) fail(now time.Time, err error, outright bool) {
	st.lastErr, st.failedAt = err, now
	st.dead = st.dead || outright
	st.share = max(1, st.share/2)
	if now.Before(st.until) {
		return
	}
	st.until = now.Add(backoff(st.strikes))
	st.reopen()
	st.strikes++
}

// full notes that the peer has enough to send. Where many ask, most of them are
// told so again and again: they ask less often each time.
func (st *standing) full(now time.Time, retry time.Duration) {
	st.busy = now.Add(retry << min(st.busies, 1))
	st.reopen()
	st.busies++
}

// late notes a block that takes too long: one at a time until it delivers.
func (st *standing) late() { st.share = 1 }

// lied notes bytes that a keeper disowned.
func (st *standing) lied(now time.Time, err error) {
	st.lastErr, st.failedAt, st.banned = err, now, now.Add(lieBackoff)
	st.reopen()
}

// reborn forgets the failures of an earlier run of the node.
func (st *standing) reborn(incarnation uint64, l Limits) {
	st.incarnation = incarnation
	st.strikes, st.timeouts, st.until, st.failedAt = 0, 0, time.Time{}, time.Time{}
	st.reopen()
	st.dead, st.answered, st.share = false, time.Time{}, l.PerPeer
}

// timeout returns how long one fetch from the peer may take. It is a last
// resort: transports end a fetch that makes no progress themselves, and one
// that does must be let finish, however slow its link.
func (st *standing) timeout() time.Duration {
	t := firstTimeout << min(st.timeouts, 4)
	return min(max(t, 8*st.typical), maxTimeout)
}

func backoff(strikes int) time.Duration {
	return min(firstBackoff<<min(strikes, 5), maxBackoff)
}

// typicals remembers how long the last blocks took.
type typicals struct {
	ring   [32]time.Duration
	n      int
	known  time.Duration
	knownN int // how many there were when known was the median
}

func (t *typicals) add(d time.Duration) {
	t.ring[t.n%len(t.ring)] = d
	t.n++
}

// median is worked out again at every eighth block, and of the first few.
func (t *typicals) median() time.Duration {
	if t.n == t.knownN || t.n > 8 && t.n-t.knownN < 8 {
		return t.known
	}
	s := t.ring
	n := min(t.n, len(s))
	slices.Sort(s[:n])
	t.known, t.knownN = s[n/2], t.n
	return t.known
}
