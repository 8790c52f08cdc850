package cache

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
)

// groupBlocks is how many blocks one sector of a map speaks of: one machine
// word of each bitmap, so that readers need no lock.
const groupBlocks = 64

// group is what is known of 64 consecutive blocks. Bits are only read with
// atomics; who may set them is the table's owner's business.
type group struct {
	have   atomic.Uint64 // present (of a registered file: sum bound)
	synced atomic.Uint64 // survives a power failure (registered: verified under the current identity)
	zero   atomic.Uint64 // present and every byte is zero
	sums   [groupBlocks]atomic.Uint32
}

// table is the map of one object in memory. Reading is lock-free and safe for
// concurrent use; changes go through the owner's mutex.
type table struct {
	obj     chunk.Object
	groups  []group
	missing atomic.Int64 // blocks not present
	zeros   *zeroSums
}

var _ chunk.Held = (*table)(nil)

func newTable(o chunk.Object, z *zeroSums) *table {
	n := o.Blocks()
	t := &table{obj: o, groups: make([]group, (n+groupBlocks-1)/groupBlocks), zeros: z}
	t.missing.Store(int64(n))
	return t
}

// locate returns the group and the bit of a block that must be in range.
func (t *table) locate(block int) (*group, uint64) {
	return &t.groups[block/groupBlocks], 1 << (block % groupBlocks)
}

func (t *table) inRange(block int) bool { return block >= 0 && block < t.obj.Blocks() }

// Has implements chunk.Held.
func (t *table) Has(block int) bool {
	if !t.inRange(block) {
		return false
	}
	g, bit := t.locate(block)
	return g.have.Load()&bit != 0
}

func (t *table) isZero(block int) bool {
	g, bit := t.locate(block)
	return g.zero.Load()&bit != 0
}

func (t *table) isSynced(block int) bool {
	g, bit := t.locate(block)
	return g.synced.Load()&bit != 0
}

// Complete implements chunk.Held.
func (t *table) Complete() bool { return t.missing.Load() == 0 }

// Sum implements chunk.Held.
func (t *table) Sum(block int) (uint32, bool) {
	if !t.Has(block) {
		return 0, false
	}
	if t.isZero(block) {
		return t.zeros.of(t.obj.Block(block).Len), true
	}
	return t.groups[block/groupBlocks].sums[block%groupBlocks].Load(), true
}

// Have implements chunk.Held.
func (t *table) Have() chunk.Bitmap {
	b := chunk.NewBitmap(t.obj.Blocks())
	raw := b.Bytes()
	for i := range t.groups {
		w := t.groups[i].have.Load()
		for k := i * 8; k < len(raw) && k < i*8+8; k++ {
			raw[k] = byte(w)
			w >>= 8
		}
	}
	return b
}

// valid returns the bits of group i that stand for blocks of the object.
func (t *table) valid(i int) uint64 {
	if n := t.obj.Blocks() - i*groupBlocks; n < groupBlocks {
		return 1<<n - 1
	}
	return ^uint64(0)
}

// recount sets missing from the bitmaps.
func (t *table) recount() {
	n := t.obj.Blocks()
	for i := range t.groups {
		n -= bits.OnesCount64(t.groups[i].have.Load())
	}
	t.missing.Store(int64(n))
}

// allSynced reports whether every present block would survive a power failure.
func (t *table) allSynced() bool {
	for i := range t.groups {
		if t.groups[i].have.Load()&^t.groups[i].synced.Load() != 0 {
			return false
		}
	}
	return true
}

// presentBytes returns the bytes of all present blocks, zeros included.
func (t *table) presentBytes() int64 {
	n := t.obj.Blocks()
	if n == 0 {
		return 0
	}
	b := (int64(n) - t.missing.Load()) * t.obj.BlockSize
	if t.Has(n - 1) {
		b -= t.obj.BlockSize - t.obj.Block(n-1).Len
	}
	return b
}

// drop forgets a block; its owner's mutex is held.
func (t *table) drop(block int) {
	g, bit := t.locate(block)
	if g.have.Load()&bit == 0 {
		return
	}
	g.have.And(^bit)
	g.synced.And(^bit)
	g.zero.And(^bit)
	t.missing.Add(1)
}

// zeroSums remembers the sums of runs of zeros: there are two lengths for each
// object size in use, and each costs a pass over a block.
type zeroSums struct{ m sync.Map } // int64 to uint32

var zeroPage [64 << 10]byte // read only

// of returns the CRC-32C of n zero bytes.
func (z *zeroSums) of(n int64) uint32 {
	if v, ok := z.m.Load(n); ok {
		return v.(uint32)
	}
	sum := chunk.Sum(nil)
	for left := n; left > 0; {
		k := min(left, int64(len(zeroPage)))
		sum = chunk.AddSum(sum, zeroPage[:k])
		left -= k
	}
	z.m.Store(n, sum)
	return sum
}
