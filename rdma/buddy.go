package rdma

import "math/bits"

const (
	// slotUnit is the smallest slot of an arena, in bytes.
	slotUnit = 4 << 10
	// maxOrder is the order of the largest slot: 64 MiB.
	maxOrder = 14
	noUnit   = int32(-1)
)

// buddy hands out runs of 2^order units of a fixed number of them, each
// aligned to its own length. It is a plain data structure: no memory behind
// it, no lock.
type buddy struct {
	units int32
	heads [maxOrder + 1]int32 // free runs of each order, linked; last freed first
	next  []int32
	prev  []int32
	free  []uint8 // order+1 at the first unit of a free run, else 0
}

func newBuddy(units int32) *buddy {
	b := &buddy{
		units: units,
		next:  make([]int32, units),
		prev:  make([]int32, units),
		free:  make([]uint8, units),
	}
	for o := range b.heads {
		b.heads[o] = noUnit
	}
	for u := int32(0); u < units; {
		o := maxOrder
		for u&(1<<o-1) != 0 || u+1<<o > units {
			o--
		}
		b.push(u, o)
		u += 1 << o
	}
	return b
}

// orderOf returns the order of the smallest run that holds n bytes.
func orderOf(n int64) int {
	units := (n + slotUnit - 1) / slotUnit
	if units <= 1 {
		return 0
	}
	return bits.Len64(uint64(units - 1))
}

// take returns the first unit of a run, or false when there is none.
func (b *buddy) take(order int) (int32, bool) {
	o := order
	for o <= maxOrder && b.heads[o] == noUnit {
		o++
	}
	if o > maxOrder {
		return noUnit, false
	}
	u := b.heads[o]
	b.drop(u, o)
	for o > order {
		o--
		b.push(u+1<<o, o)
	}
	return u, true
}

// give takes back a run that take returned, and joins it with free neighbours.
func (b *buddy) give(u int32, order int) {
	for order < maxOrder {
		n := u ^ 1<<order
		if n+1<<order > b.units || b.free[n] != uint8(order+1) {
			break
		}
		b.drop(n, order)
		u = min(u, n)
		order++
	}
	b.push(u, order)
}

func (b *buddy) push(u int32, order int) {
	h := b.heads[order]
	b.next[u], b.prev[u] = h, noUnit
	if h != noUnit {
		b.prev[h] = u
	}
	b.heads[order] = u
	b.free[u] = uint8(order + 1)
}

func (b *buddy) drop(u int32, order int) {
	if p := b.prev[u]; p != noUnit {
		b.next[p] = b.next[u]
	} else {
		b.heads[order] = b.next[u]
	}
	if n := b.next[u]; n != noUnit {
		b.prev[n] = b.prev[u]
	}
	b.free[u] = 0
}
