package verbs

import (
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
)

// Who reads an object's blocks in order asks for leases on the next ones before
// they are wanted, many in one message.
const (
	aheadBlocks = 32
	aheadBytes  = 128 << 20
	// aheadAfter blocks in order make a run; steps of up to aheadStep forward
	// and aheadBack behind do not end it, since several are fetched at once.
	aheadAfter = 2
	aheadStep  = 8
	aheadBack  = 32
	// mostRuns bounds the objects whose runs are known.
	mostRuns = 256
)

// runs knows which blocks of which objects are fetched in order from one peer.
// Safe for concurrent use. The zero value is ready.
type runs struct {
	mu sync.Mutex
	of map[chunk.ObjectID]*run
}

type run struct {
	high   int // the last block, in order
	streak int // steps forward
	to     int // asked ahead up to here
}

// want notes that a block is fetched, and returns those to ask for ahead.
func (r *runs) want(ref chunk.BlockRef) []chunk.BlockRef {
	n := int(min(aheadBlocks, aheadBytes/ref.Len))
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.of[ref.Object]
	if x == nil {
		if r.of == nil || len(r.of) >= mostRuns {
			r.of = make(map[chunk.ObjectID]*run)
		}
		r.of[ref.Object] = &run{high: ref.Index, to: ref.Index}
		return nil
	}
	switch step := ref.Index - x.high; {
	case step > 0 && step <= aheadStep:
		x.high = ref.Index
		x.streak++
	case step <= 0 && step >= -aheadBack:
		return nil
	default:
		*x = run{high: ref.Index, to: ref.Index}
		return nil
	}
	x.to = max(x.to, x.high)
	if x.streak < aheadAfter || n < 2 || x.to-x.high > n/2 {
		return nil
	}
	var out []chunk.BlockRef
	for i := x.to + 1; i <= x.high+n; i++ {
		out = append(out, chunk.BlockRef{Object: ref.Object, Index: i, Len: ref.Len})
	}
	x.to = x.high + n
	return out
}

// ahead asks for leases on the blocks after one that is fetched, over the rails
// that they would be fetched over, as far as these are connected.
func (p *peerLinks) ahead(ref chunk.BlockRef, w when) {
	refs := p.runs.want(ref)
	if len(refs) == 0 {
		return
	}
	over := make(map[*link][]chunk.BlockRef)
	for _, r := range refs {
		n, ok := p.rails.pick(r)
		if !ok {
			continue
		}
		if l := p.links[n].link.Load(); l != nil && l.alive() {
			over[l] = append(over[l], r)
		}
	}
	for l, refs := range over {
		l.askAhead(refs, w)
	}
}

// stocked returns a lease on a block that came ahead, with its link and rail.
func (p *peerLinks) stocked(ref chunk.BlockRef) (*link, int, *stocked) {
	if !p.met() {
		return nil, 0, nil
	}
	for n, r := range p.links {
		if l := r.link.Load(); l != nil && l.alive() {
			if x := l.stock.take(ref); x != nil {
				return l, n, x
			}
		}
	}
	return nil, 0, nil
}

// askAhead asks for leases that nobody waits for.
func (l *link) askAhead(refs []chunk.BlockRef, w when) {
	id := l.c.nextID()
	l.stock.ask(id)
	l.out.add(w, ask{id: id, ahead: true, refs: refs})
}
