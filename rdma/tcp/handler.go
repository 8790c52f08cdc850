package tcp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// DefaultSendStall is how long a reader may take no byte before the server
// breaks its connection.
const DefaultSendStall = 30 * time.Second

// HandlerConfig is what the serving side needs.
type HandlerConfig struct {
	Source   chunk.Source
	Auth     rdma.Authorizer
	Counters *rdma.Counters // nil counts nowhere
	Log      *slog.Logger   // nil discards
	// Admit is asked before a block of more than 64 KiB is sent, and may wait;
	// done is called when it has been sent or has failed. Its *chunk.Busy is
	// answered as such. Nil admits everything.
	Admit func(ctx context.Context, from chunk.NodeID, ref chunk.BlockRef) (done func(), err error)
	// Stall is how long a reader may take no byte; 0 means DefaultSendStall.
	Stall time.Duration
	// Limit is the rate at which blocks are sent to all peers together; nil:
	// as fast as they are taken.
	Limit *Limiter
}

// handler serves blocks. It keeps no state between requests.
type handler struct {
	HandlerConfig
	strangers quiet
	buffers   sync.Pool // of *[smallBlock]byte
}

var _ http.Handler = (*handler)(nil)

// NewHandler returns the serving side of the protocol for everything under
// /p2pfs/. It verifies a request before it looks at anything else of it. Bodies
// leave by sendfile when the server's listener yields plain *net.TCPConn.
func NewHandler(cfg HandlerConfig) http.Handler {
	if cfg.Counters == nil {
		cfg.Counters = new(rdma.Counters)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Stall == 0 {
		cfg.Stall = DefaultSendStall
	}
	return &handler{
		HandlerConfig: cfg,
		buffers:       sync.Pool{New: func() any { return new([smallBlock]byte) }},
	}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.allowTime(w)
	head := w.Header()
	head.Set(rdma.HeaderProto, protoVersion)
	head["Date"] = nil
	claim := rdma.ParseClaim(r.Header.Get)
	from, err := h.Auth.Verify(rdma.Request{Claim: claim, TLS: r.TLS})
	if err != nil {
		h.refuse(w, r, claim, err)
		return
	}
	ref, status, err := parseRequest(r)
	if err != nil {
		h.Counters.ServeFailed()
		h.Log.Warn("refuse a malformed request", "peer", from.Short(), "remote", r.RemoteAddr, "error", err)
		head.Set("Connection", "close")
		answer(w, status, err.Error())
		return
	}
	b, err := h.Source.Block(r.Context(), ref.Object, ref.Index)
	h.allowTime(w) // the source may have taken long
	if err != nil {
		h.fail(w, from, ref, err)
		return
	}
	ref.Len = b.Len
	ref.Demand = r.Header.Get(headerDemand) != ""
	if h.Admit != nil && !b.Zero && b.Len > smallBlock {
		done, err := h.Admit(r.Context(), from, ref)
		if err != nil {
			h.release(b)
			h.fail(w, from, ref, err)
			return
		}
		defer done()
		h.allowTime(w)
	}
	head.Set(rdma.HeaderNode, claim.Node)
	head.Set(rdma.HeaderIncarnation, claim.Incarnation)
	h.send(r.Context(), w, from, ref, &held{Block: b})
}

// allowTime gives the reader time to take the next bytes. Servers without
// deadlines are served without.
func (h *handler) allowTime(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.Stall))
}

// parseRequest returns the block asked for, without its length, or the status
// of the refusal.
func parseRequest(r *http.Request) (chunk.BlockRef, int, error) {
	if r.Method != http.MethodGet {
		return chunk.BlockRef{}, http.StatusMethodNotAllowed, errors.New("only GET is served")
	}
	if r.URL.RawQuery != "" || r.ContentLength != 0 {
		return chunk.BlockRef{}, http.StatusBadRequest, errors.New("neither query nor body is served")
	}
	object, index, err := parsePath(r.URL.EscapedPath())
	switch {
	case errors.Is(err, errVersion):
		return chunk.BlockRef{}, http.StatusNotImplemented, err
	case err != nil:
		return chunk.BlockRef{}, http.StatusBadRequest, err
	}
	return chunk.BlockRef{Object: object, Index: index}, http.StatusOK, nil
}

// refuse answers a request that was not authorized, and hangs up: a stranger
// keeps no connection.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, claim rdma.Claim, err error) {
	h.Counters.Refused()
	if n, ok := h.strangers.speak(time.Now()); ok {
		h.Log.Warn("refuse a request", "remote", r.RemoteAddr, "error", err, "unreported", n)
	}
	status := http.StatusForbidden
	switch {
	case errors.Is(err, chunk.ErrWrongNode):
		status = http.StatusMisdirectedRequest
	case claim.Token == "":
		status = http.StatusUnauthorized
	}
	w.Header().Set("Connection", "close")
	answer(w, status, err.Error())
}

// release gives back a block that is not sent after all.
func (h *handler) release(b chunk.Block) {
	if b.Release != nil {
		_ = b.Release() // whether it changed matters to nobody
	}
}

// fail answers an authorized request for a block that cannot be had. The text
// says nothing of local paths.
func (h *handler) fail(w http.ResponseWriter, from chunk.NodeID, ref chunk.BlockRef, err error) {
	var busy *chunk.Busy
	if errors.As(err, &busy) {
		busyHead(w.Header(), busy)
		answer(w, http.StatusTooManyRequests, busy.Error())
		return
	}
	h.Counters.ServeFailed()
	status, text := http.StatusInternalServerError, "reading the block failed"
	level := slog.LevelWarn
	switch {
	case errors.Is(err, chunk.ErrNotHeld):
		status, text, level = http.StatusNotFound, chunk.ErrNotHeld.Error(), slog.LevelDebug
	case errors.Is(err, chunk.ErrSourceChanged):
		status, text = http.StatusGone, chunk.ErrSourceChanged.Error()
	case errors.Is(err, chunk.ErrDamaged):
		status, text = http.StatusConflict, chunk.ErrDamaged.Error()
	case errors.Is(err, chunk.ErrClosed):
		status, text, level = http.StatusServiceUnavailable, "shutting down", slog.LevelDebug
	case errors.Is(err, context.Canceled):
		level = slog.LevelDebug // the reader hung up
	}
	h.Log.Log(context.Background(), level, "cannot serve a block", "object", ref.Object.Short(), "block", ref.Index, "peer", from.Short(), "error", err)
	answer(w, status, text)
}

// answer writes a short text.
func answer(w http.ResponseWriter, status int, text string) {
	if len(text) > maxText-1 {
		text = text[:maxText-1]
	}
	head := w.Header()
	head.Set("Content-Type", "text/plain; charset=utf-8")
	head.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the reader may be gone
}
