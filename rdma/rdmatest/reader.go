package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// ReaderConfig is what the fake's reading side needs.
type ReaderConfig struct {
	Credentials rdma.Credentials
	Counters    *rdma.Counters // nil counts nowhere
	Memory      int64          // bytes; 0 means rdma.DefaultMemory
	Stall       time.Duration  // 0 means 5 s
}

// Reader is the reading side of the fake: a chunk.Transport. Safe for
// concurrent use.
type Reader struct {
	cfg     ReaderConfig
	auth    *rdma.Auth
	arena   *rdma.Arena
	network *Network

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	busy   sync.WaitGroup
	pairs  map[string]*pair
}

var _ chunk.Transport = (*Reader)(nil)

// NewReader returns a reading node. The caller closes it.
func (n *Network) NewReader(cfg ReaderConfig) (*Reader, error) {
	auth, err := rdma.NewAuth(cfg.Credentials)
	if err != nil {
		return nil, err
	}
	arena, err := rdma.NewArena(cfg.Memory)
	if err != nil {
		return nil, err
	}
	if cfg.Counters == nil {
		cfg.Counters = new(rdma.Counters)
	}
	if cfg.Stall == 0 {
		cfg.Stall = 5 * time.Second
	}
	r := &Reader{cfg: cfg, auth: auth, arena: arena, network: n, pairs: make(map[string]*pair)}
	r.life, r.end = context.WithCancel(context.Background())
	return r, nil
}

// MemoryInUse returns the bytes of slots lent or being filled.
func (r *Reader) MemoryInUse() int64 { return r.arena.InUse() }

// Close breaks off what is in flight and ends every connection.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	pairs := r.pairs
	r.pairs = nil
	r.mu.Unlock()
	r.end()
	for _, q := range pairs {
		q.provider.forget(q)
	}
	r.busy.Wait()
	r.arena.Close()
	return nil
}

func (r *Reader) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return chunk.ErrClosed
	}
	r.busy.Add(1)
	return nil
}

// Fetch implements chunk.Transport.
func (r *Reader) Fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (chunk.Lease, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.busy.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.life, func() { cancel(chunk.ErrClosed) })()
	l, err := r.fetch(ctx, from, refs)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("fetch %d blocks from %s: %w", len(refs), from.Node.Short(), err)
	}
	return l, nil
}

func (r *Reader) fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (*lease, error) {
	addr := from.Addrs[Protocol]
	if addr == "" {
		return nil, fmt.Errorf("no %s address", Protocol)
	}
	l, err := r.newLease(ctx, refs)
	if err != nil {
		return nil, err
	}
	err = r.try(ctx, addr, from, l)
	if errors.Is(err, errPair) && ctx.Err() == nil {
		// The connection went to error, perhaps for another's sake.
		err = r.try(ctx, addr, from, l)
	}
	if err != nil {
		l.Release()
		for range refs {
			r.cfg.Counters.Failed(errors.Is(err, chunk.ErrCorrupt))
		}
		return nil, err
	}
	return l, nil
}

// connect returns the kept connection to addr, or a new one.
func (r *Reader) connect(ctx context.Context, addr string) (*pair, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, chunk.ErrClosed
	}
	if q := r.pairs[addr]; q != nil && !q.failed() {
		return q, nil
	}
	q, err := r.network.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	r.pairs[addr] = q
	return q, nil
}

// lease lends slots of the reader's arena.
type lease struct {
	arena    *rdma.Arena
	slots    []rdma.Slot
	blocks   []chunk.Received
	released atomic.Bool
}

func (r *Reader) newLease(ctx context.Context, refs []chunk.BlockRef) (*lease, error) {
	sizes := make([]int64, len(refs))
	for i, ref := range refs {
		sizes[i] = ref.Len
	}
	slots, err := r.arena.Acquire(ctx, sizes...)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	l := &lease{arena: r.arena, slots: slots, blocks: make([]chunk.Received, len(refs))}
	for i, ref := range refs {
		l.blocks[i] = chunk.Received{Ref: ref, Data: slots[i].Data}
	}
	return l, nil
}

// Blocks implements chunk.Lease.
func (l *lease) Blocks() []chunk.Received { return l.blocks }

// Release implements chunk.Lease.
func (l *lease) Release() {
	if l.released.CompareAndSwap(false, true) {
		l.arena.Release(l.slots...)
	}
}
