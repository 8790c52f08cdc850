package metatest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// Stalled is a store as a process sees it that stalls now and then before a
// call: it wakes up a little later, or so much later that its leases have run
// out without its knowing.
type Stalled struct {
	meta.Slots

	mu     sync.Mutex
	rnd    *rand.Rand
	lapse  int // one stall of so many is longer than a lease
	leases []meta.Lease
	lapsed int
}

var _ meta.Slots = (*Stalled)(nil)

// NewStalled returns a store over another.
func NewStalled(s meta.Slots, rnd *rand.Rand, lapse int) *Stalled {
	return &Stalled{Slots: s, rnd: rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64())), lapse: lapse}
}

// Lapsed returns how many leases have run out.
func (s *Stalled) Lapsed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lapsed
}

func (s *Stalled) stall(ctx context.Context) {
	s.mu.Lock()
	nap := time.Duration(0)
	if s.rnd.IntN(3) == 0 {
		nap = time.Duration(s.rnd.IntN(1000)) * time.Microsecond
	}
	var out []meta.Lease
	if s.rnd.IntN(s.lapse) == 0 {
		out, s.leases = s.leases, nil
		s.lapsed += len(out)
	}
	s.mu.Unlock()
	for _, l := range out {
		_ = l.Release(ctx)
	}
	time.Sleep(nap) // others go on meanwhile
}

// Get implements meta.Slots.
func (s *Stalled) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	s.stall(ctx)
	return s.Slots.Get(ctx, keys...)
}

// Apply implements meta.Slots.
func (s *Stalled) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	s.stall(ctx)
	return s.Slots.Apply(ctx, slot, conds, sets)
}

// Lease implements meta.Slots.
func (s *Stalled) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	l, err := s.Slots.Lease(ctx, key, value, ttl, conds)
	if err == nil {
		s.mu.Lock()
		s.leases = append(s.leases, l)
		s.mu.Unlock()
	}
	return l, err
}
