package meta

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Historian is a store that may lose changes it has answered: when a replica
// takes over that had not got them, or a server comes back without its last
// second.
type Historian interface {
	// Serving names the servers that have the records now. It changes when one
	// takes over from another, or was started again.
	Serving(ctx context.Context) (string, error)
	// Lacks reports whether one of some versions that Apply returned for a slot
	// is no part of its history. What the store has forgotten by age counts as
	// part of it.
	Lacks(ctx context.Context, slot Slot, versions []uint64) (bool, error)
}

// Bounds of what is remembered to be rechecked: a store loses the changes it
// made last.
const (
	recheckFor      = 10 * time.Minute
	recheckSlots    = 4096
	recheckVersions = 32
)

// made remembers the changes of the last minutes: what a fail-over may have
// lost.
type made struct {
	mu      sync.Mutex
	slots   map[Slot]*madeSlot
	serving string // when all that is remembered was checked last
}

type madeSlot struct {
	versions []uint64 // the last ones
	at       time.Time
}

// note remembers a change. It must be quick.
func (m *made) note(slot Slot, version uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[slot]
	if s == nil {
		if len(m.slots) >= recheckSlots {
			m.prune(time.Now())
		}
		if m.slots == nil {
			m.slots = make(map[Slot]*madeSlot)
		}
		s = &madeSlot{}
		m.slots[slot] = s
	}
	if len(s.versions) == recheckVersions {
		s.versions = append(s.versions[:0], s.versions[1:]...)
	}
	s.versions, s.at = append(s.versions, version), time.Now()
}

// prune forgets what is old, or else the older half. m.mu is held.
func (m *made) prune(now time.Time) {
	for age := recheckFor; len(m.slots) > recheckSlots/2 && age > time.Millisecond; age /= 2 {
		for slot, s := range m.slots {
			if now.Sub(s.at) > age {
				delete(m.slots, slot)
			}
		}
	}
	if len(m.slots) >= recheckSlots {
		clear(m.slots)
	}
}

// take returns what is to be checked; nil if these servers were asked before.
func (m *made) take(serving string) map[Slot][]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == serving {
		return nil
	}
	out := make(map[Slot][]uint64, len(m.slots))
	for slot, s := range m.slots {
		if time.Since(s.at) < recheckFor {
			out[slot] = append([]uint64(nil), s.versions...)
		}
	}
	return out
}

// Recheck reports whether the store has lost changes that this process made in
// the last ten minutes and was told of. It asks only if other servers have the
// records than at the last call. Who hears true brings back what it knows.
func (c *Catalog) Recheck(ctx context.Context) (lost bool, err error) {
	h, ok := c.raw.(Historian)
	if !ok {
		return false, nil
	}
	serving, err := h.Serving(ctx)
	if err != nil {
		return false, fmt.Errorf("ask who has the records: %w", err)
	}
	for slot, versions := range c.made.take(serving) {
		if lost, err = h.Lacks(ctx, slot, versions); err != nil {
			return false, fmt.Errorf("recheck changes of %s: %w", slot, err)
		}
		if lost {
			return true, nil // asked again until it is repaired
		}
	}
	c.made.mu.Lock()
	defer c.made.mu.Unlock()
	c.made.serving = serving
	return false, nil
}

// forget forgets what was made, for it was brought back in another epoch.
func (m *made) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.slots)
}
