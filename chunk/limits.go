package chunk

import "time"

// Limits bounds what the engine takes of the machine and how long it waits.
// A zero field means its default.
type Limits struct {
	// InFlight is how many blocks are fetched at once over all objects
	// (16), and InFlightBytes how many bytes they may have (64 MiB): the
	// memory that transports lend.
	InFlight      int
	InFlightBytes int64
	// Reserve is the part of InFlight that speculation never uses (4).
	Reserve int
	// PerPeer is how many blocks one peer is asked for at once to begin
	// with (4), and PerPeerMax the most a fast one is (8). Demanded blocks
	// may use two more.
	PerPeer    int
	PerPeerMax int
	// Peers is how many peers are followed for one object (16).
	Peers int
	// Window is how many bytes around a reader are fetched in order; the
	// object's chunk size.
	Window int64
	// WholeAfter is how many distinct bytes must be read, at most, before
	// all of an object is fetched (64 MiB).
	WholeAfter int64
	// Grace is how long a fetch, or a whole object, that nobody wants any
	// more is kept alive (10 s).
	Grace time.Duration
	// Stall is how long a read waits without a byte of its blocks arriving,
	// or without a whole one where the transport tells of no less, while a
	// provider lives (30 s), NoProvider the same with none (5 s).
	Stall      time.Duration
	NoProvider time.Duration
	// Relocate is how often the registry is asked again while an object is
	// incomplete (10 s).
	Relocate time.Duration
	// HedgeAfter is the least time after which a late block is asked of
	// another peer as well (1 s).
	HedgeAfter time.Duration
	// Uncached is how many bytes of blocks that could not be stored are
	// kept in memory, over all objects (32 MiB).
	Uncached int64
	// RetryCache is how long storing is not tried again after it failed
	// (5 s).
	RetryCache time.Duration
}

// Fixed amounts of the policy.
const (
	demandExtra   = 2                // flights a peer gets beyond its share for demanded blocks
	firstBackoff  = time.Second      // after a peer's first failure; doubles
	maxBackoff    = 30 * time.Second // the longest of them
	lieBackoff    = 10 * time.Minute // after bytes that a keeper disowned
	firstTimeout  = 2 * time.Minute  // of one fetch; doubles each time it runs out
	maxTimeout    = 10 * time.Minute
	slowBlock     = time.Second            // a block that takes longer than this came over a slow link
	askTimeout    = 4 * time.Second        // of one question to the registry or a keeper
	againWithin   = 250 * time.Millisecond // after a failed read, the next one is the same one again
	secondChance  = 3 * firstBackoff / 2   // which waits so long: a peer is probed once
	leastPatience = 200 * time.Millisecond // for a demanded block that a source sends to somebody else
	mostPatience  = 4 * time.Second
	moveTick      = time.Second // how often a flight tells that its bytes come
	activeTick    = 100 * time.Millisecond
	idleTick      = time.Second
)

func (l Limits) withDefaults() Limits {
	def(&l.InFlight, 16)
	def(&l.InFlightBytes, 64<<20)
	def(&l.Reserve, max(1, l.InFlight/4))
	def(&l.PerPeer, 4)
	def(&l.PerPeerMax, 2*l.PerPeer)
	def(&l.Peers, 16)
	def(&l.WholeAfter, 64<<20)
	def(&l.Grace, 10*time.Second)
	def(&l.Stall, 30*time.Second)
	def(&l.NoProvider, 5*time.Second)
	def(&l.Relocate, 10*time.Second)
	def(&l.HedgeAfter, time.Second)
	def(&l.Uncached, 32<<20)
	def(&l.RetryCache, 5*time.Second)
	l.Reserve = min(l.Reserve, l.InFlight-1)
	return l
}

func def[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// window returns how many blocks on each reader's way are fetched in order.
func (l Limits) window(o Object) int {
	w := l.Window
	if w <= 0 {
		w = o.ChunkSize
	}
	return int(min(max(w/o.BlockSize, 1), 64))
}

// wholeAfter returns how many distinct bytes of o must be read before all of
// it is fetched: 2 % of it, at least a block, at most WholeAfter.
func (l Limits) wholeAfter(o Object) int64 {
	return min(l.WholeAfter, max(o.Size/50, o.BlockSize))
}

// speculation returns how many bytes of o may be fetched unasked once
// distinct bytes of it were read.
func speculation(o Object, distinct int64) int64 {
	return max(o.BlockSize, 2*distinct)
}
