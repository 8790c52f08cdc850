package meta

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta/metapb"
)

// GroupBlocks is how many consecutive blocks one group of checksums covers.
const GroupBlocks = 16384

// SumGroup is what is bound about the blocks [Group*GroupBlocks, ...) of an
// object. Bitmaps and sums are indexed from the group's first block.
type SumGroup struct {
	Group   int
	Known   chunk.Bitmap // sums that are bound
	Sums    []uint32     // one for each block; meaningless where not Known
	Zero    chunk.Bitmap // blocks whose every byte is zero
	Version uint64       // of the record; 0 if there is none
}

// Groups returns how many groups the blocks of an object make.
func Groups(o chunk.Object) int { return (o.Blocks() + GroupBlocks - 1) / GroupBlocks }

// groupLen returns how many blocks a group of o has.
func groupLen(o chunk.Object, group int) int {
	return min(GroupBlocks, o.Blocks()-group*GroupBlocks)
}

func newSumGroup(o chunk.Object, group int) SumGroup {
	n := groupLen(o, group)
	return SumGroup{Group: group, Known: chunk.NewBitmap(n), Sums: make([]uint32, n), Zero: chunk.NewBitmap(n)}
}

// marshalSumGroup returns the record of a group; old is as in MarshalEntry.
func marshalSumGroup(g SumGroup, old []byte) ([]byte, error) {
	m := &metapb.SumGroup{}
	if old != nil {
		if err := proto.Unmarshal(old, m); err != nil {
			return nil, fmt.Errorf("rewrite checksums %d: %w: %w", g.Group, ErrFormat, err)
		}
	}
	m.Known, m.Sums, m.Zero = nil, nil, nil
	if g.Known.Count() > 0 {
		m.Known = g.Known.Bytes()
	}
	if g.Zero.Count() > 0 {
		m.Zero = g.Zero.Bytes()
	}
	n := lastKnown(g.Known) + 1
	m.Sums = make([]byte, 0, 4*n)
	for i, s := range g.Sums[:n] {
		if !g.Known.Has(i) {
			s = 0
		}
		m.Sums = binary.LittleEndian.AppendUint32(m.Sums, s)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write checksums %d: %w", g.Group, err)
	}
	return b, nil
}

func lastKnown(b chunk.Bitmap) int {
	for i := b.Len() - 1; i >= 0; i-- {
		if b.Has(i) {
			return i
		}
	}
	return -1
}

func unmarshalSumGroup(o chunk.Object, group int, b []byte, version uint64) (SumGroup, error) {
	g, err := decodeSumGroup(newSumGroup(o, group), b)
	if err != nil {
		return SumGroup{}, fmt.Errorf("read checksums %d of object %s: %w: %w", group, o.ID.Short(), ErrFormat, err)
	}
	g.Version = version
	return g, nil
}

func decodeSumGroup(g SumGroup, b []byte) (SumGroup, error) {
	var m metapb.SumGroup
	if err := proto.Unmarshal(b, &m); err != nil {
		return SumGroup{}, err
	}
	var err error
	if len(m.Known) > 0 {
		if g.Known, err = chunk.BitmapFrom(m.Known, g.Known.Len()); err != nil {
			return SumGroup{}, fmt.Errorf("bound blocks: %w", err)
		}
	}
	if len(m.Zero) > 0 {
		if g.Zero, err = chunk.BitmapFrom(m.Zero, g.Zero.Len()); err != nil {
			return SumGroup{}, fmt.Errorf("zero blocks: %w", err)
		}
	}
	n := len(m.Sums) / 4
	if len(m.Sums)%4 != 0 || n > len(g.Sums) || n <= lastKnown(g.Known) {
		return SumGroup{}, fmt.Errorf("checksums of %d bytes for %d blocks", len(m.Sums), len(g.Sums))
	}
	for i := range n {
		g.Sums[i] = binary.LittleEndian.Uint32(m.Sums[4*i:])
	}
	return g, nil
}
