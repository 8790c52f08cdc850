package node

import (
	"context"
	"fmt"
	"sync"
	"time"

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

// Announce implements chunk.Registry. The engine never fetches what this node
// keeps, so that no keeper's record is overwritten.
func (r *registry) Announce(ctx context.Context, set chunk.SetID, complete bool) error {
	r.mu.Lock()
	as, told := r.told[set]
	r.mu.Unlock()
	if told && (as || !complete) { // another object of the set was first
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if err := r.catalog.Announce(ctx, set, r.self, false, complete); err != nil {
		return fmt.Errorf("announce set %s: %w", set, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[set] = complete
	return nil
}

// withdraw removes this node's provider record of a set.
func (r *registry) withdraw(ctx context.Context, set chunk.SetID) error {
	r.mu.Lock()
	delete(r.told, set)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if err := r.catalog.Withdraw(ctx, set, r.self); err != nil {
		return fmt.Errorf("withdraw set %s: %w", set, err)
	}
	return nil
}
