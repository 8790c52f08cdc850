// Package chunktest holds what tests of the engine, and of what is built on
// it, need in place of the real things: files in memory, nodes with scripted
// faults, and a registry. For tests only.
package chunktest

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
)

// Store is a chunk.Store whose files live in memory. A file that is closed
// and opened again keeps its blocks. The zero value is ready.
type Store struct {
	mu      sync.Mutex
	files   map[chunk.ObjectID]*File
	openErr error
	putErr  error
	midErr  error
	opens   int
	closes  int
}

var _ chunk.Store = (*Store)(nil)

// Open returns the file of an object.
func (s *Store) Open(_ context.Context, o chunk.Object) (chunk.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.openErr != nil {
		return nil, s.openErr
	}
	s.opens++
	f := s.files[o.ID]
	if f == nil {
		f = &File{store: s, o: o, have: chunk.NewBitmap(o.Blocks()), sums: map[int]uint32{}}
		if s.files == nil {
			s.files = map[chunk.ObjectID]*File{}
		}
		s.files[o.ID] = f
	}
	return f, f.open()
}

// FailOpens makes opening fail with err from now on; nil ends that.
func (s *Store) FailOpens(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openErr = err
}

// FailWrites makes the writing of pieces fail with err from now on, though a
// stage can be begun; nil ends that.
func (s *Store) FailWrites(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.midErr = err
}

// FailPuts makes storing fail with err from now on; nil ends that.
func (s *Store) FailPuts(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putErr = err
}

// OpenFiles counts the files that are open now.
func (s *Store) OpenFiles() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens - s.closes
}

// Destroy frees the memory of every file.
func (s *Store) Destroy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if f.mem != nil {
			_ = f.mem.Close()
		}
	}
}

func (s *Store) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putErr
}

func (s *Store) writeFault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.putErr != nil {
		return s.putErr
	}
	return s.midErr
}

func (s *Store) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closes++
}

// File is a chunk.File in memory.
type File struct {
	store *Store
	o     chunk.Object

	mu   sync.RWMutex
	mem  *os.File
	have chunk.Bitmap
	here int
	sums map[int]uint32
	puts int
	// staged are the blocks being written in pieces.
	staged map[int]*stage
}

var _ chunk.File = (*File)(nil)

func (f *File) open() error {
	if f.mem != nil {
		return nil
	}
	fd, err := unix.MemfdCreate("chunktest", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file in memory: %w", err)
	}
	f.mem = os.NewFile(uintptr(fd), "chunktest")
	return f.mem.Truncate(f.o.Size)
}

// Has reports whether a block is here.
func (f *File) Has(block int) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.have.Has(block)
}

// Have returns a copy of the map of present blocks.
func (f *File) Have() chunk.Bitmap {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.have.Clone()
}

// Complete reports whether every block is here.
func (f *File) Complete() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.here == f.o.Blocks()
}

// Sum returns the checksum of a present block.
func (f *File) Sum(block int) (uint32, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	sum, ok := f.sums[block]
	return sum, ok
}

// Puts counts the blocks that were stored.
func (f *File) Puts() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.puts
}

// Put stores a block.
func (f *File) Put(block int, data []byte, sum uint32) error {
	if err := f.store.fault(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.staged, block)
	if _, err := f.mem.WriteAt(data, f.o.Block(block).Off); err != nil {
		return err
	}
	f.puts++
	f.sums[block] = sum
	f.set(block)
	return nil
}

// PutZero records zero blocks.
func (f *File) PutZero(blocks chunk.Bitmap) error {
	if err := f.store.fault(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range blocks.Len() {
		if !blocks.Has(i) || f.have.Has(i) {
			continue
		}
		delete(f.staged, i)
		b := f.o.Block(i)
		if _, err := f.mem.WriteAt(make([]byte, b.Len), b.Off); err != nil {
			return err
		}
		f.set(i)
	}
	return nil
}

// Lose forgets a block, as a scrub that found it bad would.
func (f *File) Lose(block int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.have.Clear(block)
	f.here = f.have.Count()
}

func (f *File) set(block int) {
	if !f.have.Has(block) {
		f.have.Set(block)
		f.here++
	}
}

// Reader returns the file itself.
func (f *File) Reader() *os.File { return f.mem }

// Close counts; the memory stays until Destroy.
func (f *File) Close() error {
	f.store.closed()
	return nil
}
