package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// DefaultTTL is how long a lease lasts.
const DefaultTTL = 10 * time.Second

// maxRefs bounds the blocks of one control call.
const maxRefs = 256

var errLeaseOver = errors.New("lease ran out")

// ProviderConfig is what the fake's serving side needs.
type ProviderConfig struct {
	Credentials rdma.Credentials
	Source      chunk.Source
	Counters    *rdma.Counters // nil counts nowhere
	Addr        string         // "" picks one
	Memory      int64          // registered bytes; 0 means rdma.DefaultMemory
	TTL         time.Duration  // of a lease; 0 means DefaultTTL
	Fault       Fault          // "" serves honestly
}

// Provider is the serving side of the fake. Its memory is registered once;
// blocks are read into slots of it and lent. Safe for concurrent use.
type Provider struct {
	cfg     ProviderConfig
	auth    *rdma.Auth
	arena   *rdma.Arena
	nic     *nic
	network *Network

	life  context.Context // ends with Stop
	end   context.CancelFunc
	calls sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	pairs   map[*pair]struct{}
	grants  map[uint64]*grant
	last    uint64
}

// descriptor tells a reader where a block lies.
type descriptor struct {
	ref  chunk.BlockRef
	addr uint64
	key  uint32
	len  int64
	sum  uint32
	zero bool
}

// reply is the answer to the control call for a lease.
type reply struct {
	node        chunk.NodeID
	incarnation uint64
	lease       uint64
	ttl         time.Duration
	blocks      []descriptor
}

// grant is one lease given and not yet taken back.
type grant struct {
	pair   *pair
	to     chunk.NodeID
	blocks []chunk.Block
	slots  []rdma.Slot
	timer  *time.Timer
}

func newProvider(cfg ProviderConfig, auth *rdma.Auth, arena *rdma.Arena) *Provider {
	if cfg.Counters == nil {
		cfg.Counters = new(rdma.Counters)
	}
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	p := &Provider{
		cfg: cfg, auth: auth, arena: arena, nic: newNIC(arena),
		pairs: make(map[*pair]struct{}), grants: make(map[uint64]*grant),
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.nic.setHook(p.readFault())
	return p
}

// Peer returns how to reach the node.
func (p *Provider) Peer() chunk.Peer {
	return chunk.Peer{
		Node: p.cfg.Credentials.Self, Incarnation: p.cfg.Credentials.Incarnation,
		Addrs: map[string]string{Protocol: p.cfg.Addr},
	}
}

// Leases returns how many leases are out.
func (p *Provider) Leases() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.grants)
}

// MemoryInUse returns the registered bytes that are lent.
func (p *Provider) MemoryInUse() int64 { return p.arena.InUse() }

// Stop breaks every connection and takes everything back.
func (p *Provider) Stop() {
	p.network.remove(p)
	p.mu.Lock()
	p.stopped = true
	pairs := p.pairs
	p.pairs = nil
	p.mu.Unlock()
	p.end()
	for q := range pairs {
		p.forget(q)
	}
	p.calls.Wait()
	p.nic.deregister()
	p.arena.Close()
}

func (p *Provider) accept() (*pair, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, fmt.Errorf("connect to %s: %w", p.cfg.Addr, errNoRoute)
	}
	q := newPair(p)
	p.pairs[q] = struct{}{}
	return q, nil
}

// forget ends a connection: to error first, and only then its leases.
func (p *Provider) forget(q *pair) {
	p.nic.stop(q)
	p.mu.Lock()
	delete(p.pairs, q)
	var gone []*grant
	for id, g := range p.grants {
		if g.pair == q {
			gone = append(gone, g)
			delete(p.grants, id)
		}
	}
	p.mu.Unlock()
	for _, g := range gone {
		_ = p.takeBack(g) // nobody is left to tell
	}
}

// takeBack ends a lease that was removed from grants.
func (p *Provider) takeBack(g *grant) error {
	if g.timer != nil {
		g.timer.Stop()
	}
	var errs []error
	for _, b := range g.blocks {
		errs = append(errs, b.Release())
	}
	p.arena.Release(g.slots...)
	return errors.Join(errs...)
}
