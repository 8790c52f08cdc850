package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// locateFor is how long an answer of Locate is used again: a job that opens
// the files of one set asks once, and a new provider is seen soon.
const locateFor = time.Second

// registry is the engine's view of the metadata store.
type registry struct {
	catalog *meta.Catalog
	self    chunk.NodeID
	timeout time.Duration

	mu     sync.Mutex
	recent map[chunk.SetID]located
	told   map[chunk.SetID]bool // sets announced: whether as complete
	// turns: one request about this node's record of a set at a time, so that
	// the last one asked for is the last one made. Closed when it has ended.
	turns map[chunk.SetID]chan struct{}
}

type located struct {
	at        time.Time
	providers []chunk.Provider
}

var _ chunk.Registry = (*registry)(nil)

// Locate implements chunk.Registry.
func (r *registry) Locate(ctx context.Context, set chunk.SetID) ([]chunk.Provider, error) {
	r.mu.Lock()
	l, ok := r.recent[set]
	r.mu.Unlock()
	if ok && time.Since(l.at) < locateFor {
		return l.providers, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	ps, err := r.catalog.Locate(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("locate the providers of set %s: %w", set, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for s, l := range r.recent {
		if time.Since(l.at) >= locateFor {
			delete(r.recent, s)
		}
	}
	if len(ps) > 0 { // that there is none is asked again at once
		r.recent[set] = located{at: time.Now(), providers: ps}
	}
	return ps, nil
}

// turn waits until no request about this node's record of a set is under way, and
// lets none in until end is called, once.
func (r *registry) turn(ctx context.Context, set chunk.SetID) (end func(), err error) {
	for {
		r.mu.Lock()
		other := r.turns[set]
		if other == nil {
			mine := make(chan struct{})
			if r.turns == nil {
				r.turns = map[chunk.SetID]chan struct{}{}
			}
			r.turns[set] = mine
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.turns, set)
				r.mu.Unlock()
				close(mine)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Announce implements chunk.Registry. The engine never fetches what this node
// keeps, so that no keeper's record is overwritten.
func (r *registry) Announce(ctx context.Context, set chunk.SetID, complete bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	end, err := r.turn(ctx, set)
	if err != nil {
		return fmt.Errorf("announce set %s: %w", set, err)
	}
	defer end()
	r.mu.Lock()
	as, told := r.told[set]
	r.mu.Unlock()
	if told && (as || !complete) { // another object of the set was first
		return nil
	}
	return r.announce(ctx, set, false, complete)
}

// announce does it in the set's turn.
func (r *registry) announce(ctx context.Context, set chunk.SetID, keeper, complete bool) error {
	if err := r.catalog.Announce(ctx, set, r.self, keeper, complete); err != nil {
		return fmt.Errorf("announce set %s: %w", set, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[set] = complete
	return nil
}

// withdraw removes this node's provider record of a set.
func (r *registry) withdraw(ctx context.Context, set chunk.SetID) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	end, err := r.turn(ctx, set)
	if err != nil {
		return fmt.Errorf("withdraw set %s: %w", set, err)
	}
	defer end()
	return r.retract(ctx, set)
}

// retract does it in the set's turn.
func (r *registry) retract(ctx context.Context, set chunk.SetID) error {
	r.mu.Lock()
	delete(r.told, set)
	r.mu.Unlock()
	if err := r.catalog.Withdraw(ctx, set, r.self); err != nil {
		return fmt.Errorf("withdraw set %s: %w", set, err)
	}
	return nil
}

// correct makes the record of a set, which was withdrawn, say what held tells is
// here. It is asked when no other request is under way: of those who correct
// after a change, the last one sees all of them.
func (r *registry) correct(ctx context.Context, set chunk.SetID, held func(context.Context) (cache.SetInfo, bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	end, err := r.turn(ctx, set)
	if err != nil {
		return fmt.Errorf("correct the record of set %s: %w", set, err)
	}
	defer end()
	s, here, err := held(ctx)
	if err != nil {
		return fmt.Errorf("correct the record of set %s: %w", set, err)
	}
	if here {
		return r.announce(ctx, set, s.Keeper, s.Complete)
	}
	r.mu.Lock()
	_, told := r.told[set]
	r.mu.Unlock()
	if told {
		return r.retract(ctx, set)
	}
	return nil
}
