package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// bindInterval is how long newly bound checksums are gathered before they are
// written to the store together.
const bindInterval = 300 * time.Millisecond

// binder writes to the store the checksums this node binds as a keeper, so
// that third nodes can hold others to them when this one is gone. What cannot
// be written is kept and tried again; meanwhile this node answers for it.
type binder struct {
	store bindStore
	log   *slog.Logger

	mu      sync.Mutex
	pending map[chunk.ObjectID]*bound
}

// bindStore is where bound facts are written; meta.Catalog is one.
type bindStore interface {
	// BindSums answers chunk.ErrDamaged when a block is bound otherwise.
	BindSums(ctx context.Context, o chunk.Object, sums map[int]uint32) error
	MarkDamaged(ctx context.Context, o chunk.Object, why string) error
}

// bound is what is to be written about one object.
type bound struct {
	object  chunk.Object
	sums    map[int]uint32
	damaged string // why; empty: it is not
}

func newBinder(log *slog.Logger) *binder {
	return &binder{log: log, pending: map[chunk.ObjectID]*bound{}}
}

// add notes a checksum. It never blocks: it is called while a block is served.
// An object of one block has no record of its own to write to.
func (b *binder) add(o chunk.Object, block int, sum uint32) {
	if o.Blocks() <= 1 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(o).sums[block] = sum
}

// damage notes that two contents were seen under one object. As add.
func (b *binder) damage(o chunk.Object, why string) {
	b.log.Error("object is damaged: its source changed after blocks of it were handed out", "object", o.ID, "why", why)
	if o.Blocks() <= 1 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(o).damaged = why
}

// of returns what is pending of an object; b.mu is held.
func (b *binder) of(o chunk.Object) *bound {
	p := b.pending[o.ID]
	if p == nil {
		p = &bound{object: o, sums: map[int]uint32{}}
		b.pending[o.ID] = p
	}
	return p
}

// Run writes what was added until ctx ends, and once more after.
func (b *binder) Run(ctx context.Context) error {
	tick := time.NewTicker(bindInterval)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
			defer cancel()
			return b.flush(last)
		case <-tick.C:
		}
		err := b.flush(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			b.log.Warn("checksums not written to the store yet", "err", err)
		}
		failing = err != nil
	}
}

func (b *binder) flush(ctx context.Context) error {
	b.mu.Lock()
	work := b.pending
	b.pending = map[chunk.ObjectID]*bound{}
	b.mu.Unlock()
	var failed error
	for _, p := range work {
		if failed == nil { // after one failure the store is not asked again this time
			failed = b.write(ctx, p)
		}
		if failed != nil {
			b.putBack(p)
		}
	}
	return failed
}

func (b *binder) write(ctx context.Context, p *bound) error {
	if len(p.sums) > 0 {
		err := b.store.BindSums(ctx, p.object, p.sums)
		if errors.Is(err, chunk.ErrDamaged) {
			p.damaged, err = err.Error(), nil
			b.log.Error("object is damaged", "object", p.object.ID, "why", p.damaged)
		}
		if err != nil {
			return err
		}
		clear(p.sums)
	}
	if p.damaged == "" {
		return nil
	}
	return b.store.MarkDamaged(ctx, p.object, p.damaged)
}

// putBack keeps what could not be written, beside what came meanwhile.
func (b *binder) putBack(p *bound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.of(p.object)
	for i, sum := range p.sums {
		now.sums[i] = sum
	}
	if now.damaged == "" {
		now.damaged = p.damaged
	}
}
