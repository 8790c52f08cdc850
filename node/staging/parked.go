package staging

import (
	"context"
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
)

// parked is a draft that nobody uses: its file is opened again by the first
// use. There may be very many of them.
type parked struct {
	bytes Bytes
	id    uint64
	unit  int64          // bytes; what the size of its blocks will be a multiple of
	base  cache.BaseRead // reads what it is a copy of; may be nil

	mu   sync.Mutex
	size int64
	open Draft // nil: closed
}

var _ Draft = (*parked)(nil)

func (p *parked) get() (Draft, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		d, err := p.bytes.Reopen(p.id, p.unit, p.base)
		if err != nil {
			return nil, fmt.Errorf("open a staged file again: %w", err)
		}
		p.open = d
	}
	return p.open, nil
}

// Read implements Draft.
func (p *parked) Read(ctx context.Context, off, n int64) (chunk.Data, error) {
	d, err := p.get()
	if err != nil {
		return chunk.Data{}, err
	}
	return d.Read(ctx, off, n)
}

// WriteAt implements Draft.
func (p *parked) WriteAt(ctx context.Context, b []byte, off int64) error {
	d, err := p.get()
	if err != nil {
		return err
	}
	return d.WriteAt(ctx, b, off)
}

// Append implements Draft.
func (p *parked) Append(ctx context.Context, b []byte) (int64, error) {
	d, err := p.get()
	if err != nil {
		return 0, err
	}
	return d.Append(ctx, b)
}

// Truncate implements Draft.
func (p *parked) Truncate(ctx context.Context, size int64) error {
	d, err := p.get()
	if err != nil {
		return err
	}
	return d.Truncate(ctx, size)
}

// Allocate implements Draft.
func (p *parked) Allocate(ctx context.Context, off, n int64, mode uint32) error {
	d, err := p.get()
	if err != nil {
		return err
	}
	return d.Allocate(ctx, off, n, mode)
}

// Seek implements Draft.
func (p *parked) Seek(ctx context.Context, off int64, whence int) (int64, error) {
	d, err := p.get()
	if err != nil {
		return 0, err
	}
	return d.Seek(ctx, off, whence)
}

// Size implements Draft.
func (p *parked) Size() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != nil {
		return p.open.Size()
	}
	return p.size
}

// Sync implements Draft.
func (p *parked) Sync(ctx context.Context) error {
	d, err := p.get()
	if err != nil {
		return err
	}
	return d.Sync(ctx)
}

// SetNote implements Draft.
func (p *parked) SetNote(note []byte, durable bool) error {
	d, err := p.get()
	if err != nil {
		return err
	}
	return d.SetNote(note, durable)
}

// Publish implements Draft.
func (p *parked) Publish(ctx context.Context, o chunk.Object) (cache.Sealed, error) {
	d, err := p.get()
	if err != nil {
		return cache.Sealed{}, err
	}
	return d.Publish(ctx, o)
}

// Discard implements Draft.
func (p *parked) Discard() error {
	p.mu.Lock()
	d := p.open
	p.mu.Unlock()
	if d != nil {
		return d.Discard()
	}
	return p.bytes.Discard(p.id)
}

// Close implements Draft. The next use opens the file again.
func (p *parked) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return nil
	}
	d := p.open
	p.open, p.size = nil, d.Size()
	return d.Close()
}
