package cache

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
)

// sumPiece is how many bytes are read and summed at once: few enough to stay
// in a processor's own cache in between.
const sumPiece = 256 << 10

// bufferPool lends buffers of sumPiece bytes.
type bufferPool struct{ p sync.Pool }

func (b *bufferPool) get() *[]byte {
	if v, ok := b.p.Get().(*[]byte); ok {
		return v
	}
	v := make([]byte, sumPiece)
	return &v
}

func (b *bufferPool) put(v *[]byte) { b.p.Put(v) }

// sum reads a span of a file and returns its checksum and whether every byte
// is zero. A file that ends before the span does is io.EOF, after n bytes.
func (b *bufferPool) sum(f *os.File, span chunk.Span) (sum uint32, zero bool, n int64, err error) {
	buf := b.get()
	defer b.put(buf)
	zero = true
	for n < span.Len {
		piece := (*buf)[:min(sumPiece, span.Len-n)]
		m, err := f.ReadAt(piece, span.Off+n)
		n += int64(m)
		if err != nil && m < len(piece) {
			return 0, false, n, err
		}
		sum = chunk.AddSum(sum, piece)
		zero = zero && allZero(piece)
	}
	return sum, zero, n, nil
}

// blockPool lends buffers of whole blocks.
type blockPool struct{ p sync.Pool }

func (b *blockPool) get(n int64) *[]byte {
	v, ok := b.p.Get().(*[]byte)
	if !ok || int64(cap(*v)) < n {
		w := make([]byte, n)
		return &w
	}
	*v = (*v)[:n]
	return v
}

func (b *blockPool) put(v *[]byte) { b.p.Put(v) }

// readFull reads from the file's start until b is full or the file ends.
func readFull(f *os.File, b []byte) (int, error) {
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
