package staging

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// draft is a staged file and the reader of what it is a copy of.
type draft struct {
	Draft
	id   uint64
	base *baseReader // nil: it began empty
}

// newDraft begins a staged file: empty, or a copy of an object.
func (a *Area) newDraft(ctx context.Context, o chunk.Object, empty bool) (*draft, error) {
	d := &draft{id: uint64(meta.NewInodeID())}
	var base *cache.Base
	if !empty {
		d.base = &baseReader{open: a.cfg.Open, object: o}
		base = &cache.Base{Object: o, Read: d.base.read}
	}
	var err error
	if d.Draft, err = a.cfg.Bytes.Stage(ctx, d.id, a.blockUnit(), base); err != nil {
		return nil, errors.Join(fmt.Errorf("stage a file: %w", err), d.base.close())
	}
	return d, nil
}

// blockUnit returns what the size of the blocks of new objects is a multiple
// of, in bytes: how large they are depends on the size.
func (a *Area) blockUnit() int64 { return chunk.BlockUnit(a.cfg.ChunkSize) }

// baseReader reads an object that a draft is a copy of, wherever its blocks
// are. It opens it at the first read: often all of it is here.
type baseReader struct {
	open   func(context.Context, chunk.Object) (fs.Reader, error)
	object chunk.Object

	mu sync.Mutex
	r  fs.Reader
}

// read implements cache.BaseRead.
func (b *baseReader) read(ctx context.Context, off int64, p []byte) error {
	r, err := b.reader(ctx)
	if err != nil {
		return fmt.Errorf("open object %s: %w", b.object.ID.Short(), err)
	}
	return readFull(ctx, r, off, p)
}

func (b *baseReader) reader(ctx context.Context) (fs.Reader, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.r == nil {
		r, err := b.open(ctx, b.object)
		if err != nil {
			return nil, err
		}
		b.r = r
	}
	return b.r, nil
}

// close ends the reading; a nil reader has read nothing.
func (b *baseReader) close() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.r
	b.r = nil
	if r == nil {
		return nil
	}
	return r.Close()
}

// note replaces the note beside the bytes.
func (d *draft) note(n note, durable bool) error {
	b, err := n.encode()
	if err != nil {
		return err
	}
	if err := d.SetNote(b, durable); err != nil {
		return fmt.Errorf("write the note of %q: %w", n.entry.Name, err)
	}
	return nil
}

// Close lets go of the bytes and of what they are a copy of.
func (d *draft) Close() error { return errors.Join(d.Draft.Close(), d.base.close()) }

// park closes the file until it is used again.
func (d *draft) park(a *Area) error {
	if _, ok := d.Draft.(*parked); !ok {
		p := &parked{bytes: a.cfg.Bytes, id: d.id, unit: a.blockUnit(), size: d.Size()}
		if d.base != nil {
			p.base = d.base.read
		}
		err := d.Draft.Close()
		d.Draft = p
		return errors.Join(err, d.base.close())
	}
	return d.Close()
}
