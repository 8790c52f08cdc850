package chunk

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// lateFile stands for the local file of an object while the store has none and
// can make none: its disk is full or failing. Nothing is here, and every Put
// asks the store again. Once that works it is the file. Safe for concurrent
// use.
type lateFile struct {
	o    Object
	make func() (File, error)

	file atomic.Pointer[File]

	mu     sync.Mutex // held while the file is being made
	closed bool
}

var _ File = (*lateFile)(nil)

func newLateFile(ctx context.Context, st Store, o Object) *lateFile {
	return &lateFile{o: o, make: func() (File, error) { return st.Open(ctx, o) }}
}

// made returns the file, nil while there is none.
func (l *lateFile) made() File {
	if f := l.file.Load(); f != nil {
		return *f
	}
	return nil
}

// want returns the file, made now if need be.
func (l *lateFile) want() (File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("store blocks of object %s: %w", l.o.ID.Short(), ErrClosed)
	}
	if f := l.made(); f != nil {
		return f, nil
	}
	f, err := l.make()
	if err != nil {
		return nil, err
	}
	l.file.Store(&f)
	return f, nil
}

// Has implements Held.
func (l *lateFile) Has(block int) bool {
	f := l.made()
	return f != nil && f.Has(block)
}

// Have implements Held.
func (l *lateFile) Have() Bitmap {
	if f := l.made(); f != nil {
		return f.Have()
	}
	return NewBitmap(l.o.Blocks())
}

// Complete implements Held.
func (l *lateFile) Complete() bool {
	f := l.made()
	return f != nil && f.Complete()
}

// Sum implements Held.
func (l *lateFile) Sum(block int) (uint32, bool) {
	if f := l.made(); f != nil {
		return f.Sum(block)
	}
	return 0, false
}

// Put implements File.
func (l *lateFile) Put(block int, data []byte, sum uint32) error {
	f, err := l.want()
	if err != nil {
		return err
	}
	return f.Put(block, data, sum)
}

// PutZero implements File.
func (l *lateFile) PutZero(blocks Bitmap) error {
	f, err := l.want()
	if err != nil {
		return err
	}
	return f.PutZero(blocks)
}

// Reader implements File. It is nil while nothing is here.
func (l *lateFile) Reader() *os.File {
	if f := l.made(); f != nil {
		return f.Reader()
	}
	return nil
}

// Close implements io.Closer.
func (l *lateFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if f := l.made(); f != nil {
		return f.Close()
	}
	return nil
}
