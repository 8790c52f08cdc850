package chunktest

import (
	"slices"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// Node is one node of a Net.
type Node struct {
	net  *Net
	Peer chunk.Peer

	keeper, complete bool
	unlisted         bool
	deaf             bool // cannot be followed
	down             bool
	partial          bool // it has only what have says, of one object
	of               chunk.ObjectID
	have             chunk.Bitmap
	fault            Fault
	delay            time.Duration
	rate             int64     // bytes per second of its link; 0: no limit
	free             time.Time // when the link has sent what was asked for
	fetched          []int     // blocks asked for, in order
	inFlight, most   int
	changed          chan struct{} // closed when have changes
	following        int
}

// Break sets the node's fault; nil mends it.
func (p *Node) Break(f Fault) { p.net.Do(func() { p.fault = f }) }

// Delay sets how long each block takes.
func (p *Node) Delay(d time.Duration) { p.net.Do(func() { p.delay = d }) }

// Link gives the node a link of so many bytes per second, which blocks pass
// one after the other.
func (p *Node) Link(rate int64) { p.net.Do(func() { p.rate = rate }) }

// queue puts n bytes on the link and returns how long they take from now.
func (p *Node) queue(n int64) time.Duration {
	if p.rate == 0 {
		return 0
	}
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(n * int64(time.Second) / p.rate))
	return p.free.Sub(now)
}

// Down makes the node refuse everything, or answer again.
func (p *Node) Down(down bool) { p.net.Do(func() { p.down = down }) }

// Deaf makes the node refuse to be followed.
func (p *Node) Deaf() { p.net.Do(func() { p.deaf = true }) }

// Unlist takes the node's records out of the registry, or puts them back.
func (p *Node) Unlist(gone bool) { p.net.Do(func() { p.unlisted = gone }) }

// Hint sets what the registry says of the node.
func (p *Node) Hint(complete bool) { p.net.Do(func() { p.complete = complete }) }

// Zone sets where the node is.
func (p *Node) Zone(zone string) { p.net.Do(func() { p.Peer.Zone = zone }) }

// Restart gives the node another incarnation.
func (p *Node) Restart() { p.net.Do(func() { p.Peer.Incarnation++ }) }

// Gain gives a partial node a block.
func (p *Node) Gain(block int) {
	p.net.Do(func() {
		p.have.Set(block)
		close(p.changed)
		p.changed = make(chan struct{})
	})
}

// Fetched returns the blocks asked for, in order.
func (p *Node) Fetched() (f []int) {
	p.net.Do(func() { f = slices.Clone(p.fetched) })
	return f
}

// Most returns how many blocks were asked for at once, at most.
func (p *Node) Most() (m int) { p.net.Do(func() { m = p.most }); return m }

// Following counts the streams that follow the node.
func (p *Node) Following() (c int) { p.net.Do(func() { c = p.following }); return c }

func (p *Node) refusal(from chunk.Peer, ref chunk.BlockRef) error {
	switch {
	case p.down:
		return ErrDown
	case p.Peer.Incarnation != from.Incarnation:
		return chunk.ErrWrongNode
	case p.partial && (p.of != ref.Object || !p.have.Has(ref.Index)):
		return chunk.ErrNotHeld
	}
	return nil
}
