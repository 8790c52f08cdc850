package cache

import "github.com/p2pfs/p2pfs/chunk"

// unitSum is what is known of one unit's sum while it is written.
type unitSum struct {
	sum  uint32
	upto int64  // sum is of the bytes below; from there on the unit is zeros
	zero bool   // so are the bytes below
	bad  bool   // nothing is known
	ver  uint64 // differs after every change
}

// runningSums takes sums of a staged file as it is written, of units that its
// blocks will be one or several of. A unit written from front to back, gaps
// included, has its sum at the end; any other is read again. Guarded by
// Staged.mu.
type runningSums struct {
	// fresh: a unit of which nothing is noted is zeros, or the base's. Else
	// nothing is known of it.
	fresh bool
	m     map[int]*unitSum
	ver   uint64
	epoch uint64 // counts changes that are not writes
}

// of returns the state of a unit, made if there is none, as about to change.
func (r *runningSums) of(i int) *unitSum {
	st := r.m[i]
	if st == nil {
		if r.m == nil {
			r.m = make(map[int]*unitSum)
		}
		st = &unitSum{zero: true, bad: !r.fresh}
		r.m[i] = st
	}
	r.ver++
	st.ver = r.ver
	return st
}

// wrote notes bytes written at off. foreign says whether bytes of a range are
// still the base's, which spoils a sum.
func (r *runningSums) wrote(unit, off int64, p []byte, foreign func(off, end int64) bool) {
	for len(p) > 0 {
		b := int(off / unit)
		from := int64(b) * unit
		piece := p[:min(int64(len(p)), from+unit-off)]
		st := r.of(b)
		at := off - from
		switch {
		case st.bad:
		case at < st.upto || foreign(from, from+unit):
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
func (st *unitSum) extend(at int64) {
	for st.upto < at {
		k := min(at-st.upto, int64(len(zeroPage)))
		st.sum = chunk.AddSum(st.sum, zeroPage[:k])
		st.upto += k
	}
}

// spoil notes that bytes of [off, end) may have changed in ways not followed.
func (r *runningSums) spoil(unit, off, end int64) {
	r.epoch++
	for b := int(off / unit); int64(b)*unit < end; b++ {
		r.of(b).bad = true
	}
}

// zeroed notes that [off, end) is zeros now. What foreign says is as of after
// that.
func (r *runningSums) zeroed(unit, off, end int64, foreign func(off, end int64) bool) {
	r.epoch++
	for b, st := range r.m {
		from := int64(b) * unit
		switch {
		case end <= from || off >= from+unit:
		case off <= from && end >= from+unit && !foreign(from, from+unit):
			delete(r.m, b)
		case off-from < st.upto:
			r.of(b).bad = true
		}
	}
}

// doubt notes that what is known of [off, end) may be wrong. Units of which
// nothing is noted stay what they are.
func (r *runningSums) doubt(unit, off, end int64) {
	r.epoch++
	for b := range r.m {
		if from := int64(b) * unit; from < end && off < from+unit {
			r.of(b).bad = true
		}
	}
}

// cut notes that the file ends at size now.
func (r *runningSums) cut(unit, size int64) {
	r.epoch++
	edge := int(size / unit)
	for b := range r.m {
		if b > edge || (b == edge && size%unit == 0) {
			delete(r.m, b)
		}
	}
	if st := r.m[edge]; st != nil && st.upto > size%unit {
		r.of(edge).bad = true
	}
}

// known returns the sum of unit i, which has n bytes; false if it must be read.
func (r *runningSums) known(i int, n int64, z *zeroSums) (sum uint32, zero, ok bool) {
	st := r.m[i]
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

// block returns the sum of a block that is one or several units of a staged
// file; false if it must be read.
func (r *runningSums) block(unit int64, span chunk.Span, z *zeroSums) (sum uint32, zero, ok bool) {
	if span.Off%unit != 0 {
		return 0, false, false
	}
	zero = true
	for off := span.Off; off < span.End(); off += unit {
		n := min(unit, span.End()-off)
		s, none, ok := r.known(int(off/unit), n, z)
		if !ok {
			return 0, false, false
		}
		sum, zero = chunk.JoinSums(sum, s, n), zero && none
	}
	return sum, zero, true
}

// at returns what changes when a unit does.
func (r *runningSums) at(i int) (epoch, ver uint64) {
	if st := r.m[i]; st != nil {
		ver = st.ver
	}
	return r.epoch, ver
}

// set notes the sum of a whole unit of n bytes.
func (r *runningSums) set(i int, n int64, sum uint32, zero bool) {
	st := r.of(i)
	*st = unitSum{sum: sum, upto: n, zero: zero, ver: st.ver}
}
