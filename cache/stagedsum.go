package cache

import "github.com/p2pfs/p2pfs/chunk"

// blockSum is what is known of one block's sum while it is written.
type blockSum struct {
	sum  uint32
	upto int64  // sum is of the bytes below; from there on the block is zeros
	zero bool   // so are the bytes below
	bad  bool   // nothing is known
	ver  uint64 // differs after every change
}

// runningSums takes the sums of a staged file's blocks as they are written. A
// block written from front to back, gaps included, has its sum at the end; any
// other is read again. Guarded by Staged.mu.
type runningSums struct {
	// fresh: a block of which nothing is noted is zeros, or the base's. Else
	// nothing is known of it.
	fresh bool
	m     map[int]*blockSum
	ver   uint64
	epoch uint64 // counts changes that are not writes
}

// of returns the state of a block, made if there is none, as about to change.
func (r *runningSums) of(block int) *blockSum {
	st := r.m[block]
	if st == nil {
		if r.m == nil {
			r.m = make(map[int]*blockSum)
		}
		st = &blockSum{zero: true, bad: !r.fresh}
		r.m[block] = st
	}
	r.ver++
	st.ver = r.ver
	return st
}

// wrote notes bytes written at off. foreign says whether bytes of a range are
// still the base's, which spoils a sum.
func (r *runningSums) wrote(blockSize, off int64, p []byte, foreign func(off, end int64) bool) {
	for len(p) > 0 {
		b := int(off / blockSize)
		from := int64(b) * blockSize
		piece := p[:min(int64(len(p)), from+blockSize-off)]
		st := r.of(b)
		at := off - from
		switch {
		case st.bad:
		case at < st.upto || foreign(from, from+blockSize):
			st.bad = true
		default:
			st.extend(at)
			st.sum = chunk.AddSum(st.sum, piece)
			st.zero = st.zero && allZero(piece)
			st.upto = at + int64(len(piece))
		}
		p = p[len(piece):]
		off += int64(len(piece))
	}
}

// extend takes the zeros up to at into the sum.
func (st *blockSum) extend(at int64) {
	for st.upto < at {
		k := min(at-st.upto, int64(len(zeroPage)))
		st.sum = chunk.AddSum(st.sum, zeroPage[:k])
		st.upto += k
	}
}

// spoil notes that bytes of [off, end) may have changed in ways not followed.
func (r *runningSums) spoil(blockSize, off, end int64) {
	r.epoch++
	for b := int(off / blockSize); int64(b)*blockSize < end; b++ {
		r.of(b).bad = true
	}
}

// zeroed notes that [off, end) is zeros now. What foreign says is as of after
// that.
func (r *runningSums) zeroed(blockSize, off, end int64, foreign func(off, end int64) bool) {
	r.epoch++
	for b, st := range r.m {
		from := int64(b) * blockSize
		switch {
		case end <= from || off >= from+blockSize:
		case off <= from && end >= from+blockSize && !foreign(from, from+blockSize):
			delete(r.m, b)
		case off-from < st.upto:
			r.of(b).bad = true
		}
	}
}

// doubt notes that what is known of [off, end) may be wrong. Blocks of which
// nothing is noted stay what they are.
func (r *runningSums) doubt(blockSize, off, end int64) {
	r.epoch++
	for b := range r.m {
		if from := int64(b) * blockSize; from < end && off < from+blockSize {
			r.of(b).bad = true
		}
	}
}

// cut notes that the file ends at size now.
func (r *runningSums) cut(blockSize, size int64) {
	r.epoch++
	edge := int(size / blockSize)
	for b := range r.m {
		if b > edge || (b == edge && size%blockSize == 0) {
			delete(r.m, b)
		}
	}
	if st := r.m[edge]; st != nil && st.upto > size%blockSize {
		r.of(edge).bad = true
	}
}

// known returns a block's sum, which has n bytes; false if it must be read.
func (r *runningSums) known(block int, n int64, z *zeroSums) (sum uint32, zero, ok bool) {
	st := r.m[block]
	switch {
	case st == nil && r.fresh:
		return z.of(n), true, true
	case st == nil || st.bad || st.upto > n:
		return 0, false, false
	case st.zero:
		return z.of(n), true, true
	}
	st.extend(n)
	return st.sum, false, true
}

// at returns what changes when a block does.
func (r *runningSums) at(block int) (epoch, ver uint64) {
	if st := r.m[block]; st != nil {
		ver = st.ver
	}
	return r.epoch, ver
}

// set notes the sum of a whole block of n bytes.
func (r *runningSums) set(block int, n int64, sum uint32, zero bool) {
	st := r.of(block)
	*st = blockSum{sum: sum, upto: n, zero: zero, ver: st.ver}
}
