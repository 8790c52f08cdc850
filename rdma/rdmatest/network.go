package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/rdma"
)

// Protocol is the key of the fake's addresses in chunk.Peer.Addrs.
const Protocol = "fake"

var errNoRoute = errors.New("nobody listens")

// Network joins providers and readers in memory. Safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	providers map[string]*Provider
	last      int
}

// NewNetwork returns a network without nodes.
func NewNetwork() *Network { return &Network{providers: make(map[string]*Provider)} }

// NewProvider starts a serving node at cfg.Addr. The caller stops it.
func (n *Network) NewProvider(cfg ProviderConfig) (*Provider, error) {
	auth, err := rdma.NewAuth(cfg.Credentials)
	if err != nil {
		return nil, err
	}
	arena, err := rdma.NewArena(cfg.Memory)
	if err != nil {
		return nil, err
	}
	p := newProvider(cfg, auth, arena)
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.cfg.Addr == "" {
		n.last++
		p.cfg.Addr = fmt.Sprintf("node%d:1", n.last)
	}
	if n.providers[p.cfg.Addr] != nil {
		arena.Close()
		return nil, fmt.Errorf("listen at %s: address in use", p.cfg.Addr)
	}
	n.providers[p.cfg.Addr] = p
	p.network = n
	return p, nil
}

func (n *Network) remove(p *Provider) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.providers[p.cfg.Addr] == p {
		delete(n.providers, p.cfg.Addr)
	}
}

// dial makes a connection.
func (n *Network) dial(ctx context.Context, addr string) (*pair, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	p := n.providers[addr]
	n.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, errNoRoute)
	}
	return p.accept()
}
