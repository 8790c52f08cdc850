package chunk

import (
	"fmt"
	"math"
)

// Default sizes, in bytes.
const (
	DefaultChunkSize = 64 << 20
	DefaultBlockSize = 4 << 20
	// FewBlocks is up to how many blocks of the default size an object is cut
	// into blocks of half that: the fewer blocks, the longer the links of many
	// readers wait for the first ones. 15 readers of 256 MiB are done within
	// 1.13 of the floor instead of 1.19 (simulated), of 1 GiB in about the same.
	FewBlocks = 256
	// MinBlockSize keeps blocks whole pages, so that a hole in a sparse
	// file is a hole on disk.
	MinBlockSize = 4 << 10
	// MaxBlockSize bounds the memory one fetch may ask for.
	MaxBlockSize = 64 << 20
)

// Object is what every node must agree on about immutable bytes. A value:
// copied freely, never changed.
type Object struct {
	ID        ObjectID
	Set       SetID
	Size      int64 // bytes
	ChunkSize int64 // bytes; a multiple of BlockSize
	BlockSize int64 // bytes; a power of two
	// Sparse says that Facts.Zeros knows of blocks that are all zero. A
	// hint: without it, zero blocks travel as any other.
	Sparse bool
}

// Span is a run of bytes of an object.
type Span struct {
	Off int64
	Len int64
}

// End returns the first offset after the span.
func (s Span) End() int64 { return s.Off + s.Len }

// BlockSizeFor returns the size of the blocks of an object of size bytes: the
// default, half of it where there are few, or the largest power of two that
// divides a smaller chunk. What fits one block of the default size is one.
func BlockSizeFor(chunkSize, size int64) int64 {
	b := int64(DefaultBlockSize)
	for b > MinBlockSize && (b > chunkSize || chunkSize%b != 0) {
		b >>= 1
	}
	if b == DefaultBlockSize && size > b && size <= FewBlocks*b {
		b /= 2
	}
	return b
}

// BlockUnit returns the smallest size of BlockSizeFor for a chunk size: all of
// them are multiples of it.
func BlockUnit(chunkSize int64) int64 {
	return min(BlockSizeFor(chunkSize, 0), BlockSizeFor(chunkSize, DefaultBlockSize+1))
}

// Validate reports why o cannot describe an object. Every record that comes
// from a store or a peer passes through it before it is used.
func (o Object) Validate() error {
	switch {
	case o.ID.IsZero():
		return fmt.Errorf("object without an id")
	case o.Size < 0:
		return fmt.Errorf("object %s: negative size %d", o.ID.Short(), o.Size)
	case o.BlockSize < MinBlockSize || o.BlockSize > MaxBlockSize || o.BlockSize&(o.BlockSize-1) != 0:
		return fmt.Errorf("object %s: block size %d is not a power of two from %d to %d", o.ID.Short(), o.BlockSize, MinBlockSize, MaxBlockSize)
	case o.ChunkSize < o.BlockSize || o.ChunkSize%o.BlockSize != 0:
		return fmt.Errorf("object %s: chunk size %d is not a multiple of the block size %d", o.ID.Short(), o.ChunkSize, o.BlockSize)
	case o.Size > math.MaxInt64-o.ChunkSize:
		return fmt.Errorf("object %s: size %d is out of range", o.ID.Short(), o.Size)
	case (o.Size+o.BlockSize-1)/o.BlockSize > math.MaxInt32:
		return fmt.Errorf("object %s: %d bytes in blocks of %d is too many blocks", o.ID.Short(), o.Size, o.BlockSize)
	}
	return nil
}

// Blocks returns the number of blocks; 0 for an empty object.
func (o Object) Blocks() int { return int((o.Size + o.BlockSize - 1) / o.BlockSize) }

// Block returns the bytes of block i. The last block may be short.
func (o Object) Block(i int) Span {
	off := int64(i) * o.BlockSize
	return Span{Off: off, Len: min(o.BlockSize, o.Size-off)}
}

// BlocksOf returns the half-open range of blocks that the bytes
// [off, off+n) touch, clipped to the object.
func (o Object) BlocksOf(off, n int64) (first, end int) {
	off = min(max(off, 0), o.Size)
	stop := min(off+max(n, 0), o.Size)
	if stop <= off {
		first = int(off / o.BlockSize)
		return first, first
	}
	return int(off / o.BlockSize), int((stop + o.BlockSize - 1) / o.BlockSize)
}

// ChunkBlocks returns how many blocks a full chunk has.
func (o Object) ChunkBlocks() int { return int(o.ChunkSize / o.BlockSize) }

// BlockRef names one block to a transport. Len is its exact length in bytes,
// so that an answer of any other length is refused.
type BlockRef struct {
	Object ObjectID
	Index  int
	Len    int64
	Demand bool // somebody waits for it
}

// Ref returns the reference of block i.
func (o Object) Ref(i int) BlockRef {
	return BlockRef{Object: o.ID, Index: i, Len: o.Block(i).Len}
}
