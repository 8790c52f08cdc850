package verbs

import (
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

const (
	// stockIdle is how long leases that came ahead are kept once no block is
	// taken of them.
	stockIdle = 3 * time.Second
	// mostStocked bounds them, for one link.
	mostStocked = 256
	// mostAheads bounds the asks ahead that are remembered.
	mostAheads = 16
)

type blockKey struct {
	object chunk.ObjectID
	index  int
}

// stocked is a lease on one block that came before the block was wanted.
type stocked struct {
	grant grant
	asked time.Time
}

// stock is the leases of one link that came ahead. Safe for concurrent use.
type stock struct {
	giveUp func([]grant) // called with no lock held

	mu     sync.Mutex
	closed bool
	asked  map[uint32]time.Time // asks ahead
	held   map[blockKey]stocked
	used   time.Time
	timer  *time.Timer
}

func newStock(giveUp func([]grant)) *stock {
	return &stock{giveUp: giveUp, asked: make(map[uint32]time.Time), held: make(map[blockKey]stocked)}
}

// ask notes when an ask ahead was made.
func (s *stock) ask(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) >= mostAheads {
		clear(s.asked) // what comes of these yet is given back
	}
	s.asked[id] = time.Now()
}

// put keeps a lease, or says that nobody asked for it.
func (s *stock) put(g grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, ok := s.asked[g.id]
	if !ok || s.closed || len(g.blocks) != 1 || len(s.held) >= mostStocked {
		return false
	}
	key := blockKey{g.blocks[0].object, g.blocks[0].index}
	if _, again := s.held[key]; again {
		return false
	}
	s.held[key] = stocked{g, asked}
	s.used = time.Now()
	if s.timer == nil {
		s.timer = time.AfterFunc(stockIdle, s.sweep)
	} else if len(s.held) == 1 {
		s.timer.Reset(stockIdle)
	}
	return true
}

// take returns the lease on a block, nil if there is none that is good for long
// enough.
func (s *stock) take(ref chunk.BlockRef) *stocked {
	key := blockKey{ref.Object, ref.Index}
	s.mu.Lock()
	x, ok := s.held[key]
	if ok {
		delete(s.held, key)
		s.used = time.Now()
	}
	s.mu.Unlock()
	if !ok {
		return nil
	}
	if time.Since(x.asked) > x.grant.ttl/2 {
		s.giveUp([]grant{x.grant})
		return nil
	}
	return &x
}

// sweep gives everything back once nobody takes anything, and what nobody came
// for long before its time is over.
func (s *stock) sweep() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	left := stockIdle - time.Since(s.used)
	var old []grant
	for key, x := range s.held {
		if left <= 0 || time.Since(x.asked) > x.grant.ttl/3 {
			old = append(old, x.grant)
			delete(s.held, key)
		}
	}
	if len(s.held) > 0 {
		s.timer.Reset(left)
	}
	s.mu.Unlock()
	if len(old) > 0 {
		s.giveUp(old)
	}
}

// close forgets everything: the link is gone, and with it the leases.
func (s *stock) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	clear(s.held)
	if s.timer != nil {
		s.timer.Stop()
	}
}
