package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// Protocol is the key of this transport's address in chunk.Peer.Addrs.
const Protocol = "tcp"

// Defaults of a ClientConfig.
const (
	DefaultConnsPerPeer = 8
	DefaultDialTimeout  = 2 * time.Second
	// DefaultStallTimeout is longer than a provider lets a request wait for its
	// turn and connecting to it takes, together.
	DefaultStallTimeout = chunk.LongestTurn + 3*time.Second
	DefaultIdleTimeout  = 90 * time.Second
)

// maxAnswerHead bounds the head of an answer, in bytes.
const maxAnswerHead = 8 << 10

// ClientConfig is what the reading side needs. Zero values mean the defaults.
type ClientConfig struct {
	Auth     rdma.Authorizer
	Counters *rdma.Counters // nil counts nowhere
	Log      *slog.Logger   // nil discards
	// Memory is the bytes of block buffers in all, lent or not.
	Memory int64
	// ConnsPerPeer bounds the requests in flight to one address, and the
	// connections kept to it. More fetches wait.
	ConnsPerPeer int
	// DialTimeout bounds connecting, StallTimeout any time without a byte
	// while an answer is due. Nothing bounds a transfer that moves.
	DialTimeout  time.Duration
	StallTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept.
	IdleTimeout time.Duration
	// Limit is the rate at which blocks are received from all peers together;
	// nil: as fast as they come.
	Limit *Limiter
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
	if c.ConnsPerPeer == 0 {
		c.ConnsPerPeer = DefaultConnsPerPeer
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

// Client is the reading side: a chunk.Transport over kept connections. Safe
// for concurrent use.
type Client struct {
	cfg   ClientConfig
	arena *rdma.Arena
	http  *http.Transport
	gates gates
	conns connSet
	zeros zeroSums

	life   context.Context // ends with Close
	end    context.CancelFunc
	mu     sync.Mutex
	closed bool
	busy   sync.WaitGroup // fetches and dials; entered under mu, never once closed
}

var _ chunk.Transport = (*Client)(nil)

// NewClient returns a Client with its memory mapped. It connects to nobody;
// the goroutines of its connections end with Close.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg = cfg.withDefaults()
	if cfg.Auth == nil {
		return nil, errors.New("tcp client without an authorizer")
	}
	arena, err := rdma.NewArena(cfg.Memory)
	if err != nil {
		return nil, fmt.Errorf("start tcp client: %w", err)
	}
	c := &Client{cfg: cfg, arena: arena, gates: gates{width: cfg.ConnsPerPeer}}
	c.life, c.end = context.WithCancel(context.Background())
	c.http = &http.Transport{
		Proxy:                  nil, // no environment decides where blocks go
		DialContext:            c.dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    cfg.ConnsPerPeer,
		MaxConnsPerHost:        cfg.ConnsPerPeer, // the gate lets in no more requests, this no more dials beside them
		IdleConnTimeout:        cfg.IdleTimeout,
		MaxResponseHeaderBytes: maxAnswerHead,
		// A read larger than the buffer goes straight to its target: a
		// small buffer is one that only heads pass through.
		ReadBufferSize: 4 << 10,
	}
	return c, nil
}

// MemoryInUse returns the bytes of buffers lent or being filled.
func (c *Client) MemoryInUse() int64 { return c.arena.InUse() }

// Close breaks off what is in flight, hung peers included, and closes every
// connection. Leases stay readable until they are released. It may be called
// twice.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.busy.Wait()
	c.http.CloseIdleConnections()
	c.conns.closeAll()
	c.arena.Close()
	return nil
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

// dial connects on behalf of c.http, which may want the connection for a
// request other than the one that asked.
func (c *Client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.busy.Done()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	conn, err := c.cfg.Dial(ctx, network, addr)
	if err != nil {
		return nil, &dialError{addr: addr, err: err, timeout: c.cfg.DialTimeout}
	}
	c.cfg.Limit.throttle(conn)
	kept, n := c.conns.add(conn)
	c.cfg.Log.Debug("connected to a peer", "addr", addr, "connections", n)
	return kept, nil
}

// dialError is a failure to connect. It hides the context that bounded it:
// the caller's own has not ended.
type dialError struct {
	addr    string
	err     error
	timeout time.Duration
}

func (e *dialError) Error() string {
	if errors.Is(e.err, context.DeadlineExceeded) {
		return fmt.Sprintf("connect to %s: no answer in %v", e.addr, e.timeout)
	}
	return fmt.Sprintf("connect to %s: %v", e.addr, e.err)
}

// Is keeps errno and the like visible.
func (e *dialError) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.err, target)
}

// Timeout and Temporary make it a net.Error.
func (e *dialError) Timeout() bool   { return errors.Is(e.err, context.DeadlineExceeded) }
func (e *dialError) Temporary() bool { return true }
