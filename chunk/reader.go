package chunk

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// stride is how many blocks one wait demands: a very long read goes in steps.
const stride = 16

// Reader reads one object, fetching what is absent. Safe for concurrent use.
type Reader struct {
	s      *swarm
	last   atomic.Int64 // block read last
	gone   atomic.Bool
	once   sync.Once
	closed chan struct{} // closed with gone
}

// Data is what Read found: N bytes, either File[Off, Off+N), or Bytes when
// they could not be stored. It is valid until Release, and no longer than the
// Reader is open.
type Data struct {
	File  *os.File
	Off   int64
	N     int
	Bytes []byte
	buf   *buffer
}

// Release gives the bytes back; called exactly once.
func (d Data) Release() {
	if d.buf != nil {
		d.buf.release()
	}
}

func newReader(s *swarm) *Reader {
	r := &Reader{s: s, closed: make(chan struct{})}
	r.last.Store(-1)
	return r
}

// Object returns what is read.
func (r *Reader) Object() Object { return r.s.o }

// File returns the local file, which has holes where blocks are absent; nil
// while none can be made. It stays open until the Reader is closed.
func (r *Reader) File() *os.File { return r.s.file.Reader() }

// Complete reports whether every block is here.
func (r *Reader) Complete() bool { return r.s.complete.Load() }

// Done is closed once every block is here.
func (r *Reader) Done() <-chan struct{} { return r.s.done }

// Close ends the reader and its waits. Fetches go on for the grace period.
func (r *Reader) Close() error {
	r.once.Do(func() {
		r.gone.Store(true)
		close(r.closed)
		r.s.e.part(r.s)
	})
	return nil
}

// Read returns the bytes [off, off+n), clipped at the end of the object, and
// waits for those that are absent. The end of ctx ends the wait, not the
// fetch. Errors: ErrNoProvider, ErrStalled, ErrDamaged, ErrSourceChanged,
// ErrClosed, the registry's, or ctx's.
func (r *Reader) Read(ctx context.Context, off, n int64) (Data, error) {
	o := &r.s.o
	if off < 0 || n < 0 {
		return Data{}, fmt.Errorf("read object %s: negative offset %d or length %d", o.ID.Short(), off, n)
	}
	n = min(n, o.Size-off)
	if n <= 0 {
		return Data{}, nil
	}
	if r.ended() {
		return Data{}, fmt.Errorf("read object %s: %w", o.ID.Short(), ErrClosed)
	}
	if r.s.complete.Load() {
		return r.local(off, n), nil
	}
	first, end := o.BlocksOf(off, n)
	for i := first; i < end; i++ {
		if !r.s.file.Has(i) {
			return r.slow(ctx, off, n, i, end)
		}
	}
	r.note(off, n, end-1)
	return r.local(off, n), nil
}

func (r *Reader) local(off, n int64) Data {
	return Data{File: r.s.file.Reader(), Off: off, N: int(n)}
}

// ended is asked on every read, and so looks at no channel: their locks would
// be shared by all readers.
func (r *Reader) ended() bool { return r.gone.Load() || r.s.gone.Load() }

// note counts what was read and tells the loop when that changes anything:
// another block was reached, or more may be fetched unasked.
func (r *Reader) note(off, n int64, block int) {
	moved := r.last.Swap(int64(block)) != int64(block)
	if !r.s.ramped.Load() {
		before, after := r.s.reads.add(off, n)
		if before != after {
			b := r.s.o.BlockSize
			w := r.s.e.cfg.Limits.wholeAfter(r.s.o)
			moved = moved || 2*before/b != 2*after/b || before < w && after >= w
		}
	}
	if moved {
		r.s.notice(block)
	}
}

// slow waits for the blocks [from, end) and puts the answer together.
func (r *Reader) slow(ctx context.Context, off, n int64, from, end int) (Data, error) {
	var parts map[int]*buffer
	for i := from; i < end; i += stride {
		w := &waiter{first: i, end: min(i+stride, end), ready: make(chan struct{})}
		if err := r.wait(ctx, w, nil); err != nil {
			drop(parts)
			return Data{}, err
		}
		if parts == nil {
			parts = w.parts
			continue
		}
		for b, buf := range w.parts {
			parts[b] = buf
		}
	}
	r.note(off, n, end-1)
	if len(parts) == 0 {
		return r.local(off, n), nil
	}
	return r.assemble(parts, off, n)
}

// wait enlists w and waits until it is settled, ctx ends or the reader does.
func (r *Reader) wait(ctx context.Context, w *waiter, progress func()) error {
	s := r.s
	s.post(func(now time.Time) { s.enlist(w, now) })
	for {
		select {
		case <-w.ready:
			return w.err
		case <-w.news:
			progress()
			continue
		case <-s.ended:
			return fmt.Errorf("read object %s: %w", s.o.ID.Short(), ErrClosed)
		case <-r.closed:
			s.post(func(now time.Time) { s.leave(w, now) })
			return fmt.Errorf("read object %s: %w", s.o.ID.Short(), ErrClosed)
		case <-ctx.Done():
			s.post(func(now time.Time) { s.leave(w, now) })
			return fmt.Errorf("read object %s: %w", s.o.ID.Short(), context.Cause(ctx))
		}
	}
}

// FetchAll brings all of the object here, whatever was read of it, and calls
// progress, which may be nil, with the bytes that are here and those there
// are. It fails as Read does, and when the blocks cannot be stored.
func (r *Reader) FetchAll(ctx context.Context, progress func(have, total int64)) error {
	s := r.s
	report := func() {
		if progress != nil {
			progress(s.here.Load(), s.o.Size)
		}
	}
	if !s.complete.Load() {
		w := &waiter{all: true, ready: make(chan struct{}), news: make(chan struct{}, 1)}
		if err := r.wait(ctx, w, report); err != nil {
			return err
		}
	}
	report()
	return nil
}
