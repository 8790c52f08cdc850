package rdmatest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// Source is a chunk.Source of whole objects in temporary files. It fails the
// test when a block is given back twice. Safe for concurrent use.
type Source struct {
	t   testing.TB
	dir string

	mu        sync.Mutex
	objects   map[chunk.ObjectID]*sourceObject
	lent      int
	released  int
	onBlock   func(chunk.ObjectID, int) error
	onRelease func() error
}

type sourceObject struct {
	chunk.Object
	data []byte
	file *os.File
	sums []uint32
	zero []bool
}

var _ chunk.Source = (*Source)(nil)

// NewSource returns an empty Source. Its files go with the test.
func NewSource(t testing.TB) *Source {
	return &Source{t: t, dir: t.TempDir(), objects: make(map[chunk.ObjectID]*sourceObject)}
}

// Add holds data as an object in blocks of blockSize bytes.
func (s *Source) Add(data []byte, blockSize int64) chunk.Object {
	s.t.Helper()
	o := chunk.Object{
		ID: chunk.NewObjectID(), Set: chunk.NewSetID(),
		Size: int64(len(data)), ChunkSize: 4 * blockSize, BlockSize: blockSize,
	}
	require.NoError(s.t, o.Validate())
	path := filepath.Join(s.dir, o.ID.String())
	require.NoError(s.t, os.WriteFile(path, data, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, f.Close()) })
	held := &sourceObject{Object: o, data: data, file: f}
	for i := range o.Blocks() {
		span := o.Block(i)
		p := data[span.Off:span.End()]
		held.sums = append(held.sums, chunk.Sum(p))
		held.zero = append(held.zero, len(bytes.Trim(p, "\x00")) == 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[o.ID] = held
	return o
}

// Truncate cuts the file of an object, behind the back of those who read it.
func (s *Source) Truncate(id chunk.ObjectID, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NoError(s.t, s.objects[id].file.Truncate(size))
}

// Data returns the bytes of a block; they must not be changed.
func (s *Source) Data(id chunk.ObjectID, index int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[id]
	span := o.Block(index)
	return o.data[span.Off:span.End()]
}

// OnBlock has every call of Block ask first.
func (s *Source) OnBlock(f func(chunk.ObjectID, int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onBlock = f
}

// OnRelease decides what giving back a block reports.
func (s *Source) OnRelease(f func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRelease = f
}

// Counts returns how many blocks were lent and given back.
func (s *Source) Counts() (lent, released int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lent, s.released
}

// Block implements chunk.Source.
func (s *Source) Block(_ context.Context, id chunk.ObjectID, index int) (chunk.Block, error) {
	s.mu.Lock()
	on := s.onBlock
	o := s.objects[id]
	s.mu.Unlock()
	if on != nil {
		if err := on(id, index); err != nil {
			return chunk.Block{}, err
		}
	}
	if o == nil || index < 0 || index >= o.Blocks() {
		return chunk.Block{}, fmt.Errorf("block %d of %s: %w", index, id.Short(), chunk.ErrNotHeld)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent++
	return s.lend(o, index), nil
}

func (s *Source) lend(o *sourceObject, index int) chunk.Block {
	span := o.Block(index)
	b := chunk.Block{Len: span.Len, Release: s.releaser()}
	if o.zero[index] {
		b.Zero = true
		return b
	}
	b.File, b.Off, b.Sum = o.file, span.Off, o.sums[index]
	return b
}

func (s *Source) releaser() func() error {
	var mu sync.Mutex
	done := false
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if done {
			s.t.Errorf("a block was given back twice")
		}
		done = true
		s.mu.Lock()
		s.released++
		on := s.onRelease
		s.mu.Unlock()
		if on != nil {
			return on()
		}
		return nil
	}
}

// RandomBytes returns n bytes that depend on seed alone.
func RandomBytes(seed uint64, n int64) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	p := make([]byte, n)
	_, _ = r.Read(p) // never fails
	return p
}
