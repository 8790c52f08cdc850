package verbs

import (
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// aloneAfter is how long a node counts as one that reads an object.
const aloneAfter = 2 * time.Second

// crowds knows which nodes read which objects here. Who reads alone may have
// leases ahead; several take turns, block by block, so that each gets others to
// hand on. Safe for concurrent use. The zero value is ready.
type crowds struct {
	mu   sync.Mutex
	seen map[chunk.ObjectID]map[chunk.NodeID]time.Time
}

// alone notes that a node reads an object, and says whether no other does.
func (c *crowds) alone(o chunk.ObjectID, from chunk.NodeID) bool {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = make(map[chunk.ObjectID]map[chunk.NodeID]time.Time)
	}
	nodes := c.seen[o]
	if nodes == nil {
		nodes = make(map[chunk.NodeID]time.Time)
		c.seen[o] = nodes
	}
	nodes[from] = now
	for n, at := range nodes {
		if now.Sub(at) > aloneAfter {
			delete(nodes, n)
		}
	}
	return len(nodes) == 1
}

// sweep forgets who was here long ago.
func (c *crowds) sweep() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, nodes := range c.seen {
		for n, at := range nodes {
			if now.Sub(at) > aloneAfter {
				delete(nodes, n)
			}
		}
		if len(nodes) == 0 {
			delete(c.seen, o)
		}
	}
}
