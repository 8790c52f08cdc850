package chunk

import (
	"sync"
	"sync/atomic"
)

// ringPerObject is how many blocks of one object the ring keeps.
const ringPerObject = 4

// buffer is a block in this process's memory, for as long as anybody refers
// to it.
type buffer struct {
	b    []byte
	refs atomic.Int32
	ring *ring
}

func (u *buffer) retain() *buffer {
	u.refs.Add(1)
	return u
}

func (u *buffer) release() {
	if u.refs.Add(-1) == 0 {
		u.ring.reuse(u.b)
	}
}

func drop(parts map[int]*buffer) {
	for _, u := range parts {
		u.release()
	}
}

// ring keeps the last blocks that could not be stored, so that the next small
// read of one does not fetch all of it again. Safe for concurrent use.
type ring struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	slots []ringSlot // oldest first
	spare [][]byte
}

type ringSlot struct {
	object ObjectID
	block  int
	buf    *buffer
}

func newRing(limit int64) *ring { return &ring{limit: limit} }

// make returns a buffer of n bytes, of any content, with one reference.
func (r *ring) make(n int64) *buffer {
	u := &buffer{ring: r}
	u.refs.Store(1)
	r.mu.Lock()
	for i, b := range r.spare {
		if int64(cap(b)) >= n && int64(cap(b)) <= 2*n {
			r.spare = append(r.spare[:i], r.spare[i+1:]...)
			u.b = b[:n]
			break
		}
	}
	r.mu.Unlock()
	if u.b == nil {
		u.b = make([]byte, n)
	}
	return u
}

func (r *ring) reuse(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spare) < ringPerObject {
		r.spare = append(r.spare, b)
	}
}

// get returns a block, with a reference for the caller, or nil.
func (r *ring) get(o ObjectID, block int) *buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.slots {
		if s.object == o && s.block == block {
			copy(r.slots[i:], r.slots[i+1:])
			r.slots[len(r.slots)-1] = s
			return s.buf.retain()
		}
	}
	return nil
}

// put keeps a block, in place of the oldest ones; it takes a reference.
func (r *ring) put(o ObjectID, block int, u *buffer) {
	r.evict(func() []*buffer { return r.insert(o, block, u) })
}

// forget lets go of all blocks of an object.
func (r *ring) forget(o ObjectID) {
	r.evict(func() []*buffer {
		return r.cut(func(s ringSlot) bool { return s.object == o })
	})
}

// evict releases what f, called with the mutex held, took out.
func (r *ring) evict(f func() []*buffer) {
	r.mu.Lock()
	out := f()
	r.mu.Unlock()
	for _, u := range out {
		u.release()
	}
}

func (r *ring) insert(o ObjectID, block int, u *buffer) []*buffer {
	mine := 0
	for _, s := range r.slots {
		if s.object == o && s.block == block {
			return nil
		}
		if s.object == o {
			mine++
		}
	}
	r.slots = append(r.slots, ringSlot{o, block, u.retain()})
	r.bytes += int64(len(u.b))
	spared := false
	return r.cut(func(s ringSlot) bool {
		if s.block == block && s.object == o {
			return false // the newest always stays
		}
		over := mine >= ringPerObject && s.object == o && !spared
		spared = spared || over
		return over || r.bytes > r.limit
	})
}

// cut takes out the slots that out chooses, oldest first.
func (r *ring) cut(out func(ringSlot) bool) (cut []*buffer) {
	kept := r.slots[:0]
	for _, s := range r.slots {
		if out(s) {
			r.bytes -= int64(len(s.buf.b))
			cut = append(cut, s.buf)
			continue
		}
		kept = append(kept, s)
	}
	clear(r.slots[len(kept):])
	r.slots = kept
	return cut
}

// assemble makes the answer to a read of which some blocks could not be
// stored. It gives the parts back.
func (r *Reader) assemble(parts map[int]*buffer, off, n int64) (Data, error) {
	o := &r.s.o
	first, end := o.BlocksOf(off, n)
	if u := parts[first]; u != nil && end == first+1 {
		at := off - o.Block(first).Off
		return Data{N: int(n), Bytes: u.b[at : at+n], buf: u}, nil
	}
	defer drop(parts)
	whole := r.s.e.ring.make(n)
	for i := first; i < end; i++ {
		b := o.Block(i)
		lo, hi := max(b.Off, off), min(b.End(), off+n)
		dst := whole.b[lo-off : hi-off]
		if u := parts[i]; u != nil {
			copy(dst, u.b[lo-b.Off:hi-b.Off])
			continue
		}
		if _, err := r.s.file.Reader().ReadAt(dst, lo); err != nil {
			whole.release()
			return Data{}, err
		}
	}
	return Data{N: int(n), Bytes: whole.b, buf: whole}, nil
}
