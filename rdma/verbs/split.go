package verbs

import (
	"fmt"
	"math/bits"

	"github.com/p2pfs/p2pfs/chunk"
)

// regionSize returns the length of the parts in which memory is registered: the
// largest power of two that is neither above limit, which a device sets (0: it
// sets none), nor above most. Blocks are powers of two that begin at multiples
// of their length, as are an arena's slots: none that is shorter than a part
// lies across a boundary.
func regionSize(limit uint64, most int64) (int64, error) {
	if limit == 0 || limit > uint64(most) {
		limit = uint64(most)
	}
	if limit < chunk.MinBlockSize {
		return 0, fmt.Errorf("the device registers %d bytes at most, a block has up to %d", limit, chunk.MaxBlockSize)
	}
	return 1 << (bits.Len64(limit) - 1), nil
}

// split cuts size bytes into parts of region bytes; the last may be short.
func split(size, region int64) []chunk.Span {
	var out []chunk.Span
	for off := int64(0); off < size; off += region {
		out = append(out, chunk.Span{Off: off, Len: min(region, size-off)})
	}
	return out
}

// part returns the part of a file of size bytes that n bytes at off lie in;
// false when they lie in no one part.
func part(off, n, size, region int64) (chunk.Span, bool) {
	if off < 0 || n <= 0 || off > size-n {
		return chunk.Span{}, false
	}
	start := off - off%region
	s := chunk.Span{Off: start, Len: min(region, size-start)}
	return s, off+n <= s.End()
}
