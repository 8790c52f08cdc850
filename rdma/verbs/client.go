package verbs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// Defaults of a ClientConfig.
const (
	DefaultDialTimeout  = 2 * time.Second
	DefaultStallTimeout = 8 * time.Second // longer than a provider lets a reader wait for its turn
	DefaultIdleTimeout  = 5 * time.Minute
)

// readPiece bounds one READ, in bytes.
const readPiece = 1 << 20

// maxDepth bounds the READs posted to one connection at a time.
const maxDepth = 64

// ClientConfig is what the reading side needs. Zero values mean the defaults.
type ClientConfig struct {
	Host     *Host
	Auth     rdma.Authorizer
	Counters *rdma.Counters // nil counts nowhere
	Log      *slog.Logger   // nil discards
	// Memory is the bytes of block buffers, all of them registered at start.
	Memory int64
	// Rails is the connections to one peer, from 1 to MaxRails; 0 means one
	// for each pair of ports that the two nodes have.
	Rails    int
	Strategy Strategy // "" means RoundRobin
	// DialTimeout bounds making a connection, StallTimeout any time without
	// progress, IdleTimeout how long a peer's connections are kept unused.
	DialTimeout, StallTimeout, IdleTimeout time.Duration
	// Dial replaces connecting; it must respect its context.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (c ClientConfig) withDefaults() ClientConfig {
	if c.Counters == nil {
		c.Counters = new(rdma.Counters)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Strategy == "" {
		c.Strategy = RoundRobin
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.StallTimeout == 0 {
		c.StallTimeout = DefaultStallTimeout
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c
}

func (c ClientConfig) validate() error {
	if c.Host == nil || c.Auth == nil {
		return errors.New("RDMA client without a host or an authorizer")
	}
	if c.Rails < 0 || c.Rails > MaxRails {
		return fmt.Errorf("%d rails: want 1 to %d", c.Rails, MaxRails)
	}
	_, err := ParseStrategy(string(c.Strategy))
	return err
}

// Client is the reading side: a chunk.Transport. Its memory is registered once,
// with each device. Safe for concurrent use.
type Client struct {
	cfg    ClientConfig
	arena  *rdma.Arena
	memory map[string][]*ib.Memory // by device: the parts of the arena
	sent   atomic.Uint64           // control messages
	lastID atomic.Uint32           // of an ask

	life   context.Context // ends with Close
	end    context.CancelFunc
	mu     sync.Mutex
	closed bool
	peers  map[peerKey]*peerLinks
	total  railTotals
	busy   sync.WaitGroup // fetches and links; entered under mu, never once closed
}

// peerKey is one run of one node: links to an earlier one are of no use.
type peerKey struct {
	node        chunk.NodeID
	incarnation uint64
	addr        string
}

var _ chunk.Transport = (*Client)(nil)

// NewClient returns a Client with its memory mapped and registered. It connects
// to nobody.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	arena, err := rdma.NewArena(cfg.Memory)
	if err != nil {
		return nil, fmt.Errorf("start the RDMA client: %w", err)
	}
	c := &Client{cfg: cfg, arena: arena, memory: make(map[string][]*ib.Memory), peers: make(map[peerKey]*peerLinks)}
	c.life, c.end = context.WithCancel(context.Background())
	if err := c.register(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the RDMA client: %w", err), c.Close())
	}
	return c, nil
}

// register registers the arena with every device, part by part.
func (c *Client) register() error {
	for name, d := range c.cfg.Host.devs {
		for _, s := range split(c.arena.Size(), d.region) {
			m, err := d.Register(c.arena.Memory()[s.Off:s.End()], true)
			if err != nil {
				return hint(err)
			}
			c.memory[name] = append(c.memory[name], m)
		}
	}
	return nil
}

// MemoryInUse returns the bytes of buffers lent or being filled.
func (c *Client) MemoryInUse() int64 { return c.arena.InUse() }

// Close breaks off what is in flight, hung peers included, and every link.
// Leases stay readable until they are released. It may be called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	peers := c.peers
	c.peers = nil
	c.mu.Unlock()
	c.end()
	for _, p := range peers {
		p.close()
	}
	c.busy.Wait()
	if again {
		return nil
	}
	var errs []error
	for _, all := range c.memory {
		for _, m := range all {
			errs = append(errs, m.Close())
		}
	}
	c.arena.Close()
	return errors.Join(errs...)
}

// enter begins something that Close waits for.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return chunk.ErrClosed
	}
	c.busy.Add(1)
	return nil
}

// peer returns the links to one run of a node.
func (c *Client) peer(from chunk.Peer, addr string) (*peerLinks, error) {
	key := peerKey{from.Node, from.Incarnation, addr}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, chunk.ErrClosed
	}
	p := c.peers[key]
	if p == nil {
		c.sweep()
		p = &peerLinks{c: c, peer: from, addr: addr, meeting: make(chan struct{}, 1)}
		c.peers[key] = p
	}
	p.used.Store(time.Now().UnixNano())
	return p, nil
}

// sweep forgets the links to peers that nobody asked for long. Called with mu
// held, when there is a new peer: else there is nothing to make room for.
func (c *Client) sweep() {
	old := time.Now().Add(-c.cfg.IdleTimeout).UnixNano()
	for key, p := range c.peers {
		if p.used.Load() < old {
			delete(c.peers, key)
			p.close()
		}
	}
}
