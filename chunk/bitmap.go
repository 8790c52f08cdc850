package chunk

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Bitmap is a fixed-size set of block numbers. Bit i of byte i/8 (least
// significant first) stands for block i: the form used on disk and between
// nodes. It is not safe for concurrent use.
type Bitmap struct {
	bits []byte
	n    int
}

// NewBitmap returns an empty set of n blocks.
func NewBitmap(n int) Bitmap { return Bitmap{bits: make([]byte, (n+7)/8), n: n} }

// BitmapFrom adopts the bytes of a record as a set of n blocks. It refuses a
// wrong length or a bit beyond n.
func BitmapFrom(b []byte, n int) (Bitmap, error) {
	if len(b) != (n+7)/8 {
		return Bitmap{}, fmt.Errorf("bitmap of %d bytes for %d blocks", len(b), n)
	}
	if r := n % 8; r != 0 && b[len(b)-1]>>r != 0 {
		return Bitmap{}, fmt.Errorf("bitmap has bits beyond its %d blocks", n)
	}
	return Bitmap{bits: b, n: n}, nil
}

// Len returns the number of blocks the set may hold.
func (b Bitmap) Len() int { return b.n }

// Bytes returns the set's own bytes; the caller must not change them.
func (b Bitmap) Bytes() []byte { return b.bits }

// Has reports whether block i is in the set; false outside of it.
func (b Bitmap) Has(i int) bool {
	return i >= 0 && i < b.n && b.bits[i/8]&(1<<(i%8)) != 0
}

// Set adds block i.
func (b Bitmap) Set(i int) { b.bits[i/8] |= 1 << (i % 8) }

// Clear removes block i.
func (b Bitmap) Clear(i int) { b.bits[i/8] &^= 1 << (i % 8) }

// Count returns how many blocks are in the set.
func (b Bitmap) Count() int {
	c := 0
	for _, x := range b.bits {
		c += bits.OnesCount8(x)
	}
	return c
}

// Full reports whether every block is in the set.
func (b Bitmap) Full() bool { return b.Count() == b.n }

// Fill adds every block.
func (b Bitmap) Fill() {
	for i := range b.bits {
		b.bits[i] = 0xff
	}
	if r := b.n % 8; r != 0 {
		b.bits[len(b.bits)-1] = 1<<r - 1
	}
}

// Clone returns an independent copy.
func (b Bitmap) Clone() Bitmap {
	return Bitmap{bits: append([]byte(nil), b.bits...), n: b.n}
}

// Or adds every block of o, which must be of the same length.
func (b Bitmap) Or(o Bitmap) {
	for i, x := range o.bits {
		b.bits[i] |= x
	}
}

// word returns the blocks [64*i, 64*i+64) as bits, those beyond the end absent.
func (b Bitmap) word(i int) uint64 {
	at := 8 * i
	if at+8 <= len(b.bits) {
		return binary.LittleEndian.Uint64(b.bits[at:])
	}
	var w uint64
	for k := len(b.bits) - 1; k >= at; k-- {
		w = w<<8 | uint64(b.bits[k])
	}
	return w
}

// words returns how many words there are.
func (b Bitmap) words() int { return (b.n + 63) / 64 }
