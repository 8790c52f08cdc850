package staging

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
)

// setObjects is how many small files share a set, and with it one provider
// record.
const setObjects = 4096

// rollingSet hands out the set that small files are published into. A set is
// only used once the record that says who keeps it is written.
type rollingSet struct {
	announce func(context.Context, chunk.SetID) error

	// make is held while a new set is announced: those who publish meanwhile
	// need the same record.
	make sync.Mutex

	mu    sync.Mutex
	set   chunk.SetID // zero: none
	left  int
	users map[chunk.SetID]int // publishes under way
}

// take returns a set for one object; done is called when its publish has
// ended.
func (r *rollingSet) take(ctx context.Context) (set chunk.SetID, done func(), err error) {
	if set, ok := r.current(); ok {
		return set, func() { r.done(set) }, nil
	}
	r.make.Lock()
	defer r.make.Unlock()
	if set, ok := r.current(); ok {
		return set, func() { r.done(set) }, nil
	}
	set = chunk.NewSetID()
	if err := r.announce(ctx, set); err != nil {
		return chunk.SetID{}, nil, err
	}
	r.mu.Lock()
	r.set, r.left = set, setObjects
	set = r.useLocked()
	r.mu.Unlock()
	return set, func() { r.done(set) }, nil
}

// renew ends the set, for a store that may have lost its record: the next
// publish begins another one. It returns those that publishes under way are in,
// to be announced again; one that is just being announced counts.
func (r *rollingSet) renew() []chunk.SetID {
	r.make.Lock()
	defer r.make.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = 0
	return slices.Collect(maps.Keys(r.users))
}

func (r *rollingSet) current() (chunk.SetID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 {
		return chunk.SetID{}, false
	}
	return r.useLocked(), true
}

// useLocked takes the set for one object; mu is held, and some are left.
func (r *rollingSet) useLocked() chunk.SetID {
	r.left--
	if r.users == nil {
		r.users = map[chunk.SetID]int{}
	}
	r.users[r.set]++
	return r.set
}

func (r *rollingSet) done(set chunk.SetID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users[set]--; r.users[set] <= 0 {
		delete(r.users, set)
	}
}

// uses reports whether objects go into a set, or may soon.
func (r *rollingSet) uses(set chunk.SetID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left > 0 && r.set == set || r.users[set] > 0
}
