package chunk

import (
	"math/rand/v2"
	"slices"
	"time"
)

// board is all that the policy of one object knows: what is here, what is
// wanted, what was asked of whom, and who has what. Events change it, plan
// reads it; it starts nothing, and the time is passed in. One goroutine owns
// it, or a simulator does.
type board struct {
	o      Object
	limits Limits
	rng    *rand.Rand
	self   NodeID
	zone   zone

	have    Bitmap
	left    int   // absent blocks
	queue   []int // demanded blocks, oldest first
	busy    Bitmap
	flights []*flight
	peers   []*peer
	open    []*peer      // those that the last plan could ask; no longer than it
	opensAt time.Time    // when the first of the others can be asked; zero: there is none
	damaged map[int]bool // two contents were seen; asked for on demand only

	streams  streams
	distinct int64 // bytes read, as counted
	spec     int64 // bytes asked for unasked, ever
	whole    bool  // all of it is fetched
	held     bool  // nothing unasked for now

	tally   *tally
	since   map[int]time.Time // when a demanded block was first looked for
	later   map[int]later     // blocks that a peer is sending to somebody else
	epoch   uint64            // grows when a peer that had nothing wanted may have some
	took    typicals
	low     int     // every block below is here or in flight
	fastest float64 // the best rate known of any peer; 0: none is
	crowded bool    // others fetch the object too
	perPeer int     // then: unasked blocks of one peer at once
	starved bool    // the last plan would have asked for more
	full    Bitmap  // every block; made when needed
}

// later is a peer that is not asked for a block for a moment.
type later struct {
	peer  *peer
	until time.Time
}

// flight is one block asked of one peer.
type flight struct {
	block   int
	n       int64
	peer    *peer
	spec    bool // takes a speculative place
	counted bool // its bytes count as speculation
	hedge   bool
	started time.Time
	moved   time.Time // when bytes of it last came, as far as was told
	late    bool
	lost    bool // another flight brought the block first, or nobody wants it

	cancel func()
}

func newBoard(o Object, have Bitmap, l Limits, rng *rand.Rand) *board {
	return &board{
		o: o, limits: l, rng: rng,
		have: have, left: o.Blocks() - have.Count(),
		busy:    NewBitmap(o.Blocks()),
		damaged: map[int]bool{},
		tally:   newTally(o.Blocks()),
		later:   map[int]later{},
		since:   map[int]time.Time{},
		epoch:   1,
	}
}

// demand notes that somebody waits for the block.
func (b *board) demand(block int) {
	if b.have.Has(block) { // it was here and is not any more
		b.have.Clear(block)
		b.left++
		b.low = min(b.low, block)
		b.epoch++
	}
	if !slices.Contains(b.queue, block) {
		b.queue = append(b.queue, block)
	}
}

// forgo notes that nobody waits for the block any more. Flights that only it
// needed are returned.
func (b *board) forgo(block int) (unwanted []*flight) {
	b.unqueue(block)
	for _, f := range b.flights {
		if f.block == block && !f.counted && !b.whole {
			unwanted = append(unwanted, f)
		}
	}
	return unwanted
}

func (b *board) unqueue(block int) {
	if i := slices.Index(b.queue, block); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		delete(b.since, block)
	}
}

// start makes the flight of a request.
func (b *board) start(block int, p *peer, speculative, hedge bool, now time.Time) *flight {
	f := &flight{block: block, n: b.o.Block(block).Len, peer: p, spec: speculative, hedge: hedge, started: now}
	if speculative && !hedge {
		f.counted = true
		b.spec += f.n
	}
	b.busy.Set(block)
	b.flights = append(b.flights, f)
	return f
}

// end takes a flight off the board. What failed may be asked for again.
func (b *board) end(f *flight, ok bool) {
	b.flights = slices.DeleteFunc(b.flights, func(o *flight) bool { return o == f })
	if !slices.ContainsFunc(b.flights, func(o *flight) bool { return o.block == f.block }) {
		b.busy.Clear(f.block)
	}
	if ok {
		return
	}
	if f.counted {
		b.spec -= f.n
	}
	b.low = min(b.low, f.block)
	b.epoch++
}

// arrived notes that the block is here, and returns the flights that are now
// for nothing.
func (b *board) arrived(block int) (losers []*flight) {
	b.unqueue(block)
	delete(b.later, block)
	if !b.have.Has(block) {
		b.have.Set(block)
		b.left--
	}
	return b.others(block)
}

// passed notes that the block came and could not be kept.
func (b *board) passed(block int) (losers []*flight) {
	b.unqueue(block)
	b.low = min(b.low, block)
	b.epoch++
	return b.others(block)
}

// others returns the flights of a block.
func (b *board) others(block int) (fs []*flight) {
	for _, f := range b.flights {
		if f.block == block {
			fs = append(fs, f)
		}
	}
	return fs
}

// absentee returns the first block that is not here, -1 if all are; damaged
// ones do not count.
func (b *board) absentee() int {
	for i := range b.o.Blocks() {
		if b.absent(i) {
			return i
		}
	}
	return -1
}

// firstAbsent returns the first block that is not here, -1 if all are.
func (b *board) firstAbsent() int {
	for i := range b.o.Blocks() {
		if !b.have.Has(i) {
			return i
		}
	}
	return -1
}

// ahead reports whether anything on the readers' way is absent.
func (b *board) ahead() bool {
	for d := 1; d <= b.limits.window(b.o); d++ {
		for _, s := range b.streams.list {
			if b.absent(s.step(d)) {
				return true
			}
		}
	}
	return false
}

// bytes returns how many bytes of the object are here.
func (b *board) bytes() int64 {
	last := b.o.Blocks() - 1
	n := int64(b.o.Blocks()-b.left) * b.o.BlockSize
	if last >= 0 && b.have.Has(last) {
		n -= b.o.BlockSize - b.o.Block(last).Len
	}
	return n
}

// demanded reports whether somebody waits for the block.
func (b *board) demanded(block int) bool { return slices.Contains(b.queue, block) }

// undamage lets damaged blocks be fetched unasked again.
func (b *board) undamage() {
	if len(b.damaged) > 0 {
		clear(b.damaged)
		b.low = 0
		b.epoch++
	}
}

// holder reports whether any peer can have the block for all we know.
func (b *board) holder(block int) bool {
	return slices.ContainsFunc(b.peers, func(p *peer) bool { return p.might(block) })
}

// crowd reports whether others may be fetching the object too: then what is
// fetched is best spread. With one complete provider and nobody else in
// sight, in order is as good and kinder to its disk.
func (b *board) crowd() bool {
	n := 0
	for _, p := range b.peers {
		if p.out != nil {
			continue
		}
		n++
		if n > 1 || p.partial() {
			return true
		}
	}
	return false
}

// all returns the map of a peer that has everything.
func (b *board) all() Bitmap {
	if b.full.Len() == 0 {
		b.full = NewBitmap(b.o.Blocks())
		b.full.Fill()
	}
	return b.full
}
