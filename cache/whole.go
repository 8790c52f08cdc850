package cache

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
)

// whole is the map of a registered file: every block is here.
type whole struct {
	p   *places
	obj chunk.Object
}

var _ chunk.Held = whole{}

// Has implements chunk.Held.
func (w whole) Has(block int) bool { return block >= 0 && block < w.obj.Blocks() }

// Have implements chunk.Held.
func (w whole) Have() chunk.Bitmap {
	b := chunk.NewBitmap(w.obj.Blocks())
	b.Fill()
	return b
}

// Complete implements chunk.Held.
func (w whole) Complete() bool { return true }

// Sum implements chunk.Held. Only blocks that were served have one.
func (w whole) Sum(block int) (uint32, bool) {
	s, err := w.p.get(w.obj.ID)
	if s == nil || err != nil {
		return 0, false
	}
	defer w.p.release(s)
	s.mu.Lock()
	err = s.loadSums()
	s.mu.Unlock()
	if err != nil {
		return 0, false
	}
	return s.table.Sum(block)
}

// source is a registered file open on its own node: the file itself, edits and
// all.
type source struct {
	whole
	f    *os.File
	once sync.Once
	err  error
}

var _ chunk.File = (*source)(nil)

// open returns the registered file of an object; ok is false if there is none.
func (p *places) open(id chunk.ObjectID) (chunk.File, bool, error) {
	r, ok, err := p.find(id)
	if !ok || err != nil {
		return nil, false, err
	}
	f, err := openSource(r.path)
	if err != nil {
		return nil, true, fmt.Errorf("open object %s: %w", id.Short(), err)
	}
	return &source{whole: whole{p, r.obj}, f: f}, true, nil
}

// errReadOnly: every block of a registered file is where it belongs.
func (s *source) errReadOnly() error {
	return fmt.Errorf("put into object %s: %w: %s", s.obj.ID.Short(), ErrKept, s.f.Name())
}

// Put implements chunk.File: it refuses.
func (s *source) Put(int, []byte, uint32) error { return s.errReadOnly() }

// PutZero implements chunk.File: it refuses.
func (s *source) PutZero(chunk.Bitmap) error { return s.errReadOnly() }

// Reader implements chunk.File.
func (s *source) Reader() *os.File { return s.f }

// Close implements io.Closer.
func (s *source) Close() error {
	s.once.Do(func() { s.err = s.f.Close() })
	return s.err
}

// info is what is here of a registered file.
func (r record) info() Info {
	return Info{
		Object: r.obj, Complete: true, InPlace: true, Keeper: true,
		Path: r.path, LocalBytes: r.obj.Size, Damaged: r.damaged, Note: r.note,
	}
}

// sweep removes the sums of files that are no longer registered.
func (p *places) sweep(ctx context.Context) {
	dirs, _ := filepath.Glob(filepath.Join(p.root.dir, "objects", "??"))
	for _, dir := range dirs {
		if ctx.Err() != nil {
			return
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*.sums"))
		for _, path := range files {
			id, err := chunk.ParseObjectID(strings.TrimSuffix(filepath.Base(path), ".sums"))
			if err != nil {
				continue
			}
			if _, ok, err := p.find(id); err == nil && !ok {
				os.Remove(path)
			}
		}
	}
}
