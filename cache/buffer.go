package cache

import (
	"errors"
	"io"
	"os"
	"sync"
)

// bufferPool lends buffers of one block each.
type bufferPool struct{ p sync.Pool }

// get returns a buffer of at least n bytes, cut to n.
func (b *bufferPool) get(n int64) *[]byte {
	if v, ok := b.p.Get().(*[]byte); ok && int64(cap(*v)) >= n {
		*v = (*v)[:n]
		return v
	}
	v := make([]byte, n)
	return &v
}

func (b *bufferPool) put(v *[]byte) { b.p.Put(v) }

// readFull reads from the file's start until b is full or the file ends.
func readFull(f *os.File, b []byte) (int, error) {
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
