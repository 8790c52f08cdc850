package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/p2pfs/p2pfs/chunk"
)

const (
	// smallBlock: up to here a block is read and checked before its first
	// byte leaves; one write carries head and body.
	smallBlock = 64 << 10
	// heldBack is how much of a larger block leaves only after its source
	// was checked.
	heldBack = 4 << 10
)

// held is a block that a Source lent. One goroutine uses it.
type held struct {
	chunk.Block
	released bool
}

// release gives the block back on its first call.
func (b *held) release() error {
	if b.released || b.Release == nil {
		return nil
	}
	b.released = true
	return b.Release()
}

func (b *held) check() error {
	switch {
	case b.Len <= 0 || b.Len > chunk.MaxBlockSize:
		return fmt.Errorf("block of %d bytes", b.Len)
	case !b.Zero && (b.File == nil || b.Off < 0):
		return fmt.Errorf("block without a file")
	}
	return nil
}

// send answers with a block, and gives it back whatever happens.
func (h *handler) send(ctx context.Context, w http.ResponseWriter, from chunk.NodeID, ref chunk.BlockRef, b *held) {
	defer func() { _ = b.release() }() // only when it was not checked before: then another error counts
	err := b.check()
	if err != nil {
		h.fail(w, from, ref, err)
		return
	}
	switch {
	case b.Zero:
		err = h.sendZero(w, from, ref, b)
	case b.Len <= smallBlock:
		err = h.sendSmall(ctx, w, from, ref, b)
	default:
		err = h.sendLarge(ctx, w, from, ref, b)
	}
	if err == nil {
		return
	}
	h.Counters.ServeFailed()
	h.Log.Log(context.Background(), levelOf(err), "break off a block", "object", ref.Object.Short(), "block", ref.Index, "peer", from.Short(), "error", err)
	panic(http.ErrAbortHandler)
}

// levelOf says how much an aborted answer matters: a reader that hung up is
// everyday, a source that changed is not.
func levelOf(err error) slog.Level {
	if errors.Is(err, errReader) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// errReader marks failures of the connection rather than of the source.
var errReader = errors.New("the reader is gone or takes nothing")

func (h *handler) sendZero(w http.ResponseWriter, from chunk.NodeID, ref chunk.BlockRef, b *held) error {
	if err := b.release(); err != nil {
		h.fail(w, from, ref, err)
		return nil
	}
	head{zero: true}.write(w.Header(), ref)
	w.WriteHeader(http.StatusOK)
	h.Counters.Served()
	return nil
}

func (h *handler) sendSmall(ctx context.Context, w http.ResponseWriter, from chunk.NodeID, ref chunk.BlockRef, b *held) error {
	buf := h.buffers.Get().(*[smallBlock]byte)
	defer h.buffers.Put(buf)
	p := buf[:b.Len]
	err := readAt(b.File, p, b.Off)
	if err := errors.Join(b.release(), err); err != nil {
		h.fail(w, from, ref, err)
		return nil
	}
	head{sum: b.Sum}.write(w.Header(), ref)
	w.WriteHeader(http.StatusOK)
	return h.sendTail(ctx, w, from, p)
}

func (h *handler) sendLarge(ctx context.Context, w http.ResponseWriter, from chunk.NodeID, ref chunk.BlockRef, b *held) error {
	head{sum: b.Sum}.write(w.Header(), ref)
	w.WriteHeader(http.StatusOK)
	// Without the head in front, the body starts on a page.
	if err := http.NewResponseController(w).Flush(); err != nil {
		return fmt.Errorf("%w: %w", errReader, err)
	}
	body := &section{file: b.File, off: b.Off, end: b.Off + b.Len - heldBack, stall: h.Stall, ctx: ctx, limit: h.Limit}
	n, err := body.sendTo(w)
	h.Counters.Sent(from, n)
	if err != nil {
		return err
	}
	buf := h.buffers.Get().(*[smallBlock]byte)
	defer h.buffers.Put(buf)
	tail := buf[:heldBack]
	err = readAt(b.File, tail, body.end)
	if err := errors.Join(b.release(), err); err != nil {
		return err
	}
	return h.sendTail(ctx, w, from, tail)
}

// sendTail writes the last bytes of a block; its source was checked.
func (h *handler) sendTail(ctx context.Context, w http.ResponseWriter, from chunk.NodeID, p []byte) error {
	for len(p) > 0 {
		now := len(p)
		if h.Limit != nil {
			var err error
			if now, err = h.waitTurn(ctx, w, now); err != nil {
				return err
			}
		}
		h.allowTime(w)
		n, err := w.Write(p[:now])
		h.Counters.Sent(from, int64(n))
		if err != nil {
			return fmt.Errorf("%w: %w", errReader, err)
		}
		p = p[now:]
	}
	h.Counters.Served()
	return nil
}

// waitTurn sends what was written so far, so that the reader sees that the
// block comes, and waits for a turn of the limiter.
func (h *handler) waitTurn(ctx context.Context, w http.ResponseWriter, n int) (int, error) {
	h.allowTime(w)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return 0, fmt.Errorf("%w: %w", errReader, err)
	}
	n, err := h.Limit.take(ctx, n)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errReader, err)
	}
	return n, nil
}

// readAt fills p, and takes the end of the file for an error.
func readAt(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %d of the source: %w", len(p), off, err)
}
