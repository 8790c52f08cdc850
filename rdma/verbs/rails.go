package verbs

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// Strategy is how a block finds its rail, one of the connections to a peer.
type Strategy string

// The strategies there are.
const (
	Random     Strategy = "random"
	RoundRobin Strategy = "round-robin"
	// StickyHash sends the blocks of one chunk of 64 MiB or so by one rail.
	StickyHash Strategy = "sticky-hash"
)

// MaxRails bounds the connections to one peer.
const MaxRails = 64

// ParseStrategy reads the name of a strategy.
func ParseStrategy(s string) (Strategy, error) {
	switch st := Strategy(s); st {
	case Random, RoundRobin, StickyHash:
		return st, nil
	}
	return "", fmt.Errorf("unknown strategy %q: want %s, %s or %s", s, Random, RoundRobin, StickyHash)
}

const (
	// stickyBlocks of one object in a row share a rail.
	stickyBlocks = 16
	// A rail that fails is left alone for a while, twice as long each time.
	firstPause = time.Second
	longPause  = 30 * time.Second
	// maxSilent is how often in a row READs over a rail may be given up with
	// none of them ended: another peer was faster each time, and perhaps the
	// rail leads nowhere.
	maxSilent = 3
)

// rails chooses among the connections to one peer. Safe for concurrent use.
type rails struct {
	strategy Strategy
	now      func() time.Time
	random   func(n int) int
	seed     maphash.Seed

	mu   sync.Mutex
	next int
	rail []railState
}

type railState struct {
	until time.Time     // not to be used before
	pause time.Duration // the last one; 0 after a success
	// silent counts what was given up with no READ ended since the last success.
	silent int
}

func newRails(n int, s Strategy, now func() time.Time) *rails {
	return &rails{strategy: s, now: now, random: rand.IntN, seed: maphash.MakeSeed(), rail: make([]railState, n)}
}

// pick returns the rail for a block; false while all of them are paused.
func (r *rails) pick(ref chunk.BlockRef) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	first := r.first(ref)
	// The others follow in order, so that what is stuck to a paused rail
	// sticks to one other.
	for i := range r.rail {
		n := (first + i) % len(r.rail)
		if !now.Before(r.rail[n].until) {
			return n, true
		}
	}
	return 0, false
}

func (r *rails) first(ref chunk.BlockRef) int {
	switch r.strategy {
	case Random:
		return r.random(len(r.rail))
	case StickyHash:
		h := maphash.Comparable(r.seed, stickyKey{ref.Object, ref.Index / stickyBlocks})
		return int(h % uint64(len(r.rail)))
	}
	r.next = (r.next + 1) % len(r.rail)
	return r.next
}

type stickyKey struct {
	object chunk.ObjectID
	group  int
}

// failed pauses a rail. Failures that come together count once.
func (r *rails) failed(n int) (pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.rail[n]
	now := r.now()
	if now.Before(s.until) {
		return s.until.Sub(now)
	}
	s.pause = min(max(2*s.pause, firstPause), longPause)
	s.until = now.Add(s.pause)
	return s.pause
}

// silent notes that READs over a rail were given up with none of them ended, and
// says whether that was so too often.
func (r *rails) silent(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rail[n].silent++
	return r.rail[n].silent >= maxSilent
}

// worked ends the doubling of a rail's pauses.
func (r *rails) worked(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rail[n] = railState{}
}
