package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// readPiece bounds one read, so that its bytes are still in the processor's
// cache when they are summed.
const readPiece = 256 << 10

// target is one peer, as requests to it need it.
type target struct {
	peer  chunk.Peer
	addr  string
	claim rdma.Claim
}

// sink takes the body of an answer, and returns how many bytes came and their
// sum.
type sink func(body io.Reader, w *watchdog) (n int64, sum uint32, err error)

// into returns a sink that fills p, which is as long as the block.
func into(p []byte) sink {
	return func(body io.Reader, w *watchdog) (int64, uint32, error) {
		n, sum, err := readBody(body, p, 0, time.Time{}, w)
		return int64(n), sum, err
	}
}

// get asks for one block, has its body taken, and completes b. http.Transport
// tries a fresh connection when a kept one turns out to be dead before the
// first byte of an answer.
func (c *Client) get(ctx context.Context, t target, b *chunk.Received, take sink) error {
	w := watch(ctx, c.cfg.StallTimeout)
	defer w.stop()
	resp, err := c.http.RoundTrip(request(w.ctx, t, b.Ref))
	if err != nil {
		return w.explain(protocolError(err))
	}
	defer resp.Body.Close() // breaks the connection unless the body was read to its end
	w.progress()
	h, err := parseHead(resp, t.claim, b.Ref)
	if err != nil {
		return w.explain(err)
	}
	if h.zero {
		b.Zero, b.Data, b.Sum = true, nil, c.zeros.sum(b.Ref.Len)
		return nil
	}
	var body io.Reader = resp.Body
	if c.cfg.Limit != nil {
		body = &paced{body: body, limit: c.cfg.Limit, watch: w}
	}
	n, sum, err := take(body, w)
	c.cfg.Counters.Received(t.peer.Node, n)
	if err != nil {
		return w.explain(fmt.Errorf("after %d of %d bytes: %w", n, b.Ref.Len, err))
	}
	if sum != h.sum {
		return fmt.Errorf("%w: its bytes sum to %08x, it declared %08x", chunk.ErrCorrupt, sum, h.sum)
	}
	b.Sum = sum
	return nil
}

func request(ctx context.Context, t target, ref chunk.BlockRef) *http.Request {
	head := make(http.Header, 8)
	t.claim.Each(head.Set)
	if ref.Demand {
		head[headerDemand] = []string{"1"}
	}
	r := &http.Request{
		Method:     http.MethodGet,
		URL:        &url.URL{Scheme: "http", Host: t.addr, Path: blockPath(ref.Object, ref.Index)},
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     head,
	}
	return r.WithContext(ctx)
}

// readBody fills p straight from the connection, and adds it to sum. Past until,
// unless that is zero, it is content with what has come.
func readBody(body io.Reader, p []byte, sum uint32, until time.Time, w *watchdog) (n int, _ uint32, err error) {
	for n < len(p) {
		m, err := body.Read(p[n:min(n+readPiece, len(p))])
		if m > 0 {
			w.progress()
			sum = chunk.AddSum(sum, p[n:n+m])
			n += m
		}
		if err != nil && n < len(p) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return n, sum, err
		}
		if !until.IsZero() && time.Now().After(until) {
			break
		}
	}
	return n, sum, nil
}

// protocolError tells an answer that is not HTTP from a network that failed.
func protocolError(err error) error {
	var network net.Error
	var errno syscall.Errno
	switch {
	case errors.As(err, &network), errors.As(err, &errno),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, chunk.ErrClosed):
		return err
	}
	return fmt.Errorf("%w: %w", chunk.ErrCorrupt, err)
}

// watchdog ends a request that makes no progress. One goroutine uses it.
type watchdog struct {
	ctx   context.Context // of the request
	end   context.CancelCauseFunc
	bound time.Duration
	timer *time.Timer
}

func watch(ctx context.Context, bound time.Duration) *watchdog {
	w := &watchdog{bound: bound}
	w.ctx, w.end = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(bound, func() {
		w.end(fmt.Errorf("%w for %v", chunk.ErrStalled, bound))
	})
	return w
}

func (w *watchdog) progress() { w.timer.Reset(w.bound) }

// pause stops the clock until the next progress.
func (w *watchdog) pause() { w.timer.Stop() }

func (w *watchdog) stop() {
	w.timer.Stop()
	w.end(nil)
}

// explain returns why the request was ended, if it was, instead of the error
// that came of it.
func (w *watchdog) explain(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	return err
}
