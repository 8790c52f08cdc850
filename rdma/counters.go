package rdma

import (
	"sync"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/chunk"
)

// Stats is a copy of a node's transport counters since it started. Bytes are
// payload: block bytes that crossed the wire, verified or not, without headers.
type Stats struct {
	ReceivedBytes uint64
	SentBytes     uint64
	Requests      uint64 // blocks asked of peers
	Errors        uint64 // of those, failed for any reason but the caller's context
	Corrupt       uint64 // of those, failed with chunk.ErrCorrupt
	Served        uint64 // blocks sent to peers in full
	Refused       uint64 // requests of strangers, and requests meant for another node
	ServeErrors   uint64 // other requests that got no block
}

// PeerBytes is the payload exchanged with one peer, in bytes.
type PeerBytes struct {
	Received uint64
	Sent     uint64
}

// Counters counts for one node; its reading and its serving sides share one.
// The zero value is ready. Safe for concurrent use.
type Counters struct {
	received, sent               atomic.Uint64
	requests, failed, corrupt    atomic.Uint64
	served, refused, serveErrors atomic.Uint64

	mu    sync.RWMutex
	peers map[chunk.NodeID]*peerCounter // one for each node that ever proved itself
}

type peerCounter struct{ received, sent atomic.Uint64 }

// Received counts payload bytes that arrived from a peer.
func (c *Counters) Received(from chunk.NodeID, n int64) {
	if n <= 0 {
		return
	}
	c.received.Add(uint64(n))
	c.peer(from).received.Add(uint64(n))
}

// Sent counts payload bytes that left for a peer.
func (c *Counters) Sent(to chunk.NodeID, n int64) {
	if n <= 0 {
		return
	}
	c.sent.Add(uint64(n))
	c.peer(to).sent.Add(uint64(n))
}

// Request counts a block asked of a peer.
func (c *Counters) Request() { c.requests.Add(1) }

// Failed counts a request that failed.
func (c *Counters) Failed(corrupt bool) {
	c.failed.Add(1)
	if corrupt {
		c.corrupt.Add(1)
	}
}

// Served counts a block sent in full.
func (c *Counters) Served() { c.served.Add(1) }

// Refused counts a request that was not authorized.
func (c *Counters) Refused() { c.refused.Add(1) }

// ServeFailed counts an authorized request that got no block.
func (c *Counters) ServeFailed() { c.serveErrors.Add(1) }

// Stats returns a copy.
func (c *Counters) Stats() Stats {
	return Stats{
		ReceivedBytes: c.received.Load(),
		SentBytes:     c.sent.Load(),
		Requests:      c.requests.Load(),
		Errors:        c.failed.Load(),
		Corrupt:       c.corrupt.Load(),
		Served:        c.served.Load(),
		Refused:       c.refused.Load(),
		ServeErrors:   c.serveErrors.Load(),
	}
}

// Peers returns a copy of the bytes exchanged with each peer.
func (c *Counters) Peers() map[chunk.NodeID]PeerBytes {
	c.mu.RLock()
	defer c.mu.RUnlock()
	m := make(map[chunk.NodeID]PeerBytes, len(c.peers))
	for id, p := range c.peers {
		m[id] = PeerBytes{Received: p.received.Load(), Sent: p.sent.Load()}
	}
	return m
}

func (c *Counters) peer(id chunk.NodeID) *peerCounter {
	c.mu.RLock()
	p := c.peers[id]
	c.mu.RUnlock()
	if p != nil {
		return p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p = c.peers[id]; p != nil {
		return p
	}
	if c.peers == nil {
		c.peers = make(map[chunk.NodeID]*peerCounter)
	}
	p = new(peerCounter)
	c.peers[id] = p
	return p
}
