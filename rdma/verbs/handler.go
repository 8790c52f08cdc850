package verbs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// Path is what a Handler serves.
const Path = "/p2pfs/v1/verbs"

// Headers of the request for a link and of its answer.
const (
	upgradeName = "p2pfs-verbs"
	headerEnd   = "P2pfs-Verbs"      // an endpoint
	headerRail  = "P2pfs-Verbs-Rail" // of the provider, as Rail.Name
	headerGID   = "P2pfs-Verbs-Gid"  // index on that rail
)

// Defaults of a HandlerConfig.
const (
	DefaultRegistered = 1 << 30
	DefaultTTL        = 30 * time.Second
	DefaultIdle       = time.Minute
	sendStall         = 30 * time.Second
)

// smallBlock: up to here a block needs no Admit.
const smallBlock = 64 << 10

// HandlerConfig is what the serving side needs. Zero values mean the defaults.
type HandlerConfig struct {
	Host     *Host
	Source   chunk.Source
	Auth     rdma.Authorizer
	Counters *rdma.Counters // nil counts nowhere
	Log      *slog.Logger   // nil discards
	// Admit is asked before a block of more than 64 KiB is lent, and may wait;
	// done is called when the lease has ended.
	Admit func(ctx context.Context, from chunk.NodeID, ref chunk.BlockRef) (done func(), err error)
	// Note is told of blocks that were READ without Admit, by a node that reads
	// their object alone and asked for leases ahead.
	Note func(ref chunk.BlockRef)
	// Registered bounds the bytes of files that are registered at a time; what
	// is smaller than 64 KiB counts for as much.
	Registered int64
	// TTL is how long a lease lasts, Idle how long an unused registration.
	TTL, Idle time.Duration
}

func (c HandlerConfig) withDefaults() HandlerConfig {
	if c.Counters == nil {
		c.Counters = new(rdma.Counters)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registered == 0 {
		c.Registered = DefaultRegistered
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	return c
}

// Handler is the serving side: it answers requests for Path, and lends blocks
// over the links that come of them. Safe for concurrent use.
type Handler struct {
	cfg     HandlerConfig
	regions *budget[regionKey, region]
	sent    atomic.Uint64 // control messages
	granted atomic.Uint64 // leases
	expired atomic.Uint64
	last    atomic.Uint64 // lease
	crowds  crowds
	faults  faults

	life    context.Context // ends with Close
	end     context.CancelFunc
	mu      sync.Mutex
	closed  bool
	links   map[*served]struct{}
	sweeper *time.Timer
	busy    sync.WaitGroup // links; entered under mu, never once closed
}

var _ http.Handler = (*Handler)(nil)

// faults are for tests: what a hostile provider does. Nil functions do nothing.
type faults struct {
	onAsk    func(l *served) (answer bool)
	onGrant  func(l *served, g *grant)
	onReturn func(l *served) (answer bool)
}

// ServeStats is a copy of a Handler's counters.
type ServeStats struct {
	Links           int    `json:"links"`
	Messages        uint64 `json:"messages"`        // control messages sent
	Leases          uint64 `json:"leases"`          // given so far
	Expired         uint64 `json:"expired"`         // of those, ran out
	Registrations   uint64 `json:"registrations"`   // made so far
	RegisteredBytes int64  `json:"registeredBytes"` // now, as HandlerConfig.Registered counts
}

// NewHandler returns the serving side. The caller closes it.
func NewHandler(cfg HandlerConfig) (*Handler, error) {
	cfg = cfg.withDefaults()
	if cfg.Host == nil || cfg.Auth == nil || cfg.Source == nil {
		return nil, errors.New("RDMA handler without a host, an authorizer or a source")
	}
	h := &Handler{cfg: cfg, links: make(map[*served]struct{})}
	h.regions = newBudget[regionKey](cfg.Registered, cfg.Host.mostRegions(), h.closeRegion, time.Now)
	h.life, h.end = context.WithCancel(context.Background())
	h.sweeper = time.AfterFunc(cfg.Idle, h.sweep)
	return h, nil
}

func (h *Handler) closeRegion(r region) {
	if err := r.close(); err != nil {
		h.cfg.Log.Warn("a registration was not given back", "err", err)
	}
}

func (h *Handler) sweep() {
	h.regions.sweep(h.cfg.Idle)
	h.crowds.sweep()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.sweeper.Reset(h.cfg.Idle)
	}
}

// Stats returns a copy of the counters.
func (h *Handler) Stats() ServeStats {
	h.mu.Lock()
	s := ServeStats{Links: len(h.links)}
	h.mu.Unlock()
	s.Messages, s.Leases, s.Expired = h.sent.Load(), h.granted.Load(), h.expired.Load()
	s.Registrations, s.RegisteredBytes = h.regions.stats()
	return s
}

// Close breaks every link, and gives everything back. It may be called twice.
func (h *Handler) Close() error {
	h.mu.Lock()
	h.closed = true
	h.sweeper.Stop()
	h.mu.Unlock()
	h.end()
	h.busy.Wait()
	h.regions.stop()
	return nil
}

func (h *Handler) enter(l *served) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return chunk.ErrClosed
	}
	h.links[l] = struct{}{}
	h.busy.Add(1)
	return nil
}

func (h *Handler) leave(l *served) {
	h.mu.Lock()
	delete(h.links, l)
	h.mu.Unlock()
	h.busy.Done()
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendStall)) // fails when closed, as the writing will
	head := w.Header()
	head.Set(rdma.HeaderProto, rdma.Proto)
	head.Set("Connection", "close") // the deadline would outlive this answer
	claim := rdma.ParseClaim(r.Header.Get)
	from, err := h.cfg.Auth.Verify(rdma.Request{Claim: claim, TLS: r.TLS})
	if err != nil {
		h.cfg.Counters.Refused()
		status := http.StatusForbidden
		if errors.Is(err, chunk.ErrWrongNode) {
			status = http.StatusMisdirectedRequest
		}
		http.Error(w, err.Error(), status)
		return
	}
	head.Set(rdma.HeaderNode, claim.Node)
	head.Set(rdma.HeaderIncarnation, claim.Incarnation)
	switch {
	case r.Method != http.MethodGet || r.URL.Path != Path:
		http.Error(w, "only GET "+Path+" is served", http.StatusBadRequest)
	case r.Header.Get("Upgrade") == "":
		head.Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(listed(h.cfg.Host.Rails())) // the reader may be gone
	case r.Header.Get("Upgrade") != upgradeName:
		http.Error(w, "unknown upgrade", http.StatusBadRequest)
	default:
		if err := h.upgrade(w, r, claim, from); err != nil {
			h.cfg.Log.Warn("refuse an RDMA connection", "peer", from.Short(), "remote", r.RemoteAddr, "err", err)
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

// upgrade makes the link. Once the connection was taken over from the server,
// it returns nil.
func (h *Handler) upgrade(w http.ResponseWriter, r *http.Request, claim rdma.Claim, from chunk.NodeID) error {
	other, err := parseEndpoint(r.Header.Get(headerEnd))
	if err != nil {
		return err
	}
	index, err := strconv.Atoi(r.Header.Get(headerGID))
	if err != nil {
		return fmt.Errorf("%w: index of an address", errWire)
	}
	rail, gid, ok := h.cfg.Host.rail(r.Header.Get(headerRail), index)
	if !ok {
		return fmt.Errorf("no rail %.64q with address %d here", r.Header.Get(headerRail), index)
	}
	l := &served{h: h, from: from, dev: h.cfg.Host.devs[rail.Device], leases: make(map[uint64]*lent)}
	if l.incarnation, err = strconv.ParseUint(claim.Incarnation, 10, 64); err != nil {
		return fmt.Errorf("%w: incarnation", errWire)
	}
	if err := h.enter(l); err != nil {
		return err
	}
	defer h.leave(l) // until then the device stays open
	q, own, err := h.cfg.Host.newEnd(rail, gid, 1)
	if err != nil {
		return err
	}
	l.queue = q
	if err := h.cfg.Host.join(q, rail, gid, own, other); err != nil {
		q.Close()
		return fmt.Errorf("connect with %s: %w", other.device, err)
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		q.Close()
		return fmt.Errorf("take over the connection: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{}) // fails when closed, as what follows will
	_ = conn.SetWriteDeadline(time.Now().Add(sendStall))
	l.control = newControl(conn, rw.Reader, sendStall, &h.sent)
	l.out = &outbox{send: l.send, enough: func() int { return mostWaiting }, patience: answerAfter}
	h.cfg.Log.Debug("RDMA connection with a reader", "peer", from.Short(), "own", own.device, "peer_device", other.device)
	if err := answer101(conn, claim, own); err == nil {
		_ = conn.SetWriteDeadline(time.Time{}) // each message has its own
		l.run(h.life)
	}
	l.stop()
	return nil
}

func answer101(conn net.Conn, claim rdma.Claim, own endpoint) error {
	w := bufio.NewWriter(conn)
	_, _ = fmt.Fprintf(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n", upgradeName)
	for _, kv := range [][2]string{
		{rdma.HeaderProto, rdma.Proto}, {rdma.HeaderNode, claim.Node}, {rdma.HeaderIncarnation, claim.Incarnation}, {headerEnd, own.String()},
	} {
		_, _ = fmt.Fprintf(w, "%s: %s\r\n", kv[0], kv[1])
	}
	_, _ = w.WriteString("\r\n")
	return w.Flush() // reports the first error of all
}
