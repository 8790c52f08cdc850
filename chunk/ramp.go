package chunk

import "sync/atomic"

// reads counts the distinct bytes of an object that were read. It never
// counts a byte twice, and may miss some: of each block it keeps one interval,
// which reads that touch it extend; a read elsewhere in the block counts only
// once it is longer than the interval, which it then replaces. That is exact
// for whoever reads forwards or backwards, and low for small random reads.
// Safe for concurrent use, without locks.
type reads struct {
	o        Object
	distinct atomic.Int64
	pages    []atomic.Pointer[readPage]
}

// readPage holds the intervals of 512 blocks: low end in the high half, high
// end in the low half; 0 is none. Pages are made when first touched, so that
// a few reads of a huge object cost little.
type readPage [512]atomic.Uint64

func newReads(o Object) *reads {
	return &reads{o: o, pages: make([]atomic.Pointer[readPage], o.Blocks()/len(readPage{})+1)}
}

// add counts a read of [off, off+n), which lies inside the object, and returns
// the distinct bytes before and after it.
func (c *reads) add(off, n int64) (before, after int64) {
	var grew int64
	first, end := c.o.BlocksOf(off, n)
	for b := first; b < end; b++ {
		start := int64(b) * c.o.BlockSize
		lo := max(off-start, 0)
		hi := min(off+n-start, c.o.BlockSize)
		grew += extend(c.cell(b), uint64(lo), uint64(hi))
	}
	if grew == 0 {
		after = c.distinct.Load()
		return after, after
	}
	after = c.distinct.Add(grew)
	return after - grew, after
}

func (c *reads) cell(block int) *atomic.Uint64 {
	slot := &c.pages[block/len(readPage{})]
	p := slot.Load()
	if p == nil {
		slot.CompareAndSwap(nil, new(readPage))
		p = slot.Load()
	}
	return &p[block%len(readPage{})]
}

// extend joins [lo, hi) to the interval in the cell and returns how much
// longer the interval became.
func extend(cell *atomic.Uint64, lo, hi uint64) int64 {
	for {
		old := cell.Load()
		olo, ohi := old>>32, old&(1<<32-1)
		nlo, nhi := lo, hi
		switch {
		case old == 0:
		case lo <= ohi && hi >= olo:
			nlo, nhi = min(lo, olo), max(hi, ohi)
		case hi-lo <= ohi-olo:
			return 0
		}
		grew := int64(nhi-nlo) - int64(ohi-olo)
		if grew == 0 {
			return 0
		}
		if cell.CompareAndSwap(old, nlo<<32|nhi) {
			return grew
		}
	}
}
