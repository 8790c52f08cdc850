package staging

import (
	"context"
	"sync"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
)

// past is a staged file that was sealed and is not open: its note lies here, its
// bytes are an object.
type past struct {
	bytes  Bytes
	id     uint64
	object chunk.Object // zero: an empty file
	open   func(ctx context.Context, o chunk.Object) (fs.Reader, error)

	mu sync.Mutex
	r  fs.Reader // nil: not open
}

var _ Draft = (*past)(nil)

func (p *past) reader(ctx context.Context) (fs.Reader, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.r == nil {
		r, err := p.open(ctx, p.object)
		if err != nil {
			return nil, err
		}
		p.r = r
	}
	return p.r, nil
}

// Read implements Draft.
func (p *past) Read(ctx context.Context, off, n int64) (chunk.Data, error) {
	if n = min(n, p.object.Size-off); n <= 0 {
		return chunk.Data{}, nil
	}
	r, err := p.reader(ctx)
	if err != nil {
		return chunk.Data{}, err
	}
	return r.Read(ctx, off, n)
}

// WriteAt implements Draft.
func (p *past) WriteAt(context.Context, []byte, int64) error { return cache.ErrSpent }

// Append implements Draft.
func (p *past) Append(context.Context, []byte) (int64, error) { return 0, cache.ErrSpent }

// Truncate implements Draft.
func (p *past) Truncate(context.Context, int64) error { return cache.ErrSpent }

// Allocate implements Draft.
func (p *past) Allocate(context.Context, int64, int64, uint32) error { return cache.ErrSpent }

// Seek implements Draft.
func (p *past) Seek(_ context.Context, off int64, whence int) (int64, error) {
	return seekWhole(p.object.Size, off, uint32(whence))
}

// Size implements Draft.
func (p *past) Size() int64 { return p.object.Size }

// Sync implements Draft. What was sealed is durable.
func (p *past) Sync(context.Context) error { return nil }

// SetNote implements Draft.
func (p *past) SetNote(note []byte, durable bool) error { return p.bytes.Note(p.id, note, durable) }

// Publish implements Draft.
func (p *past) Publish(context.Context, chunk.Object) (cache.Sealed, error) {
	return cache.Sealed{}, cache.ErrSpent
}

// Discard implements Draft: the note goes.
func (p *past) Discard() error { return p.bytes.Discard(p.id) }

// Close implements Draft. The next read opens the object again.
func (p *past) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.r
	p.r = nil
	if r == nil {
		return nil
	}
	return r.Close()
}
