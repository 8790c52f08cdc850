package node

import (
	"context"
	"math/rand/v2"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/rdma"
)

// crowd is who follows which object here, as far as they said how to reach them.
// The zero value knows nobody yet. Safe for concurrent use.
type crowd struct {
	mu      sync.Mutex
	objects map[chunk.ObjectID][]*nodepb.PeerInfo
}

// join adds a follower, until the returned function is called, once, and names
// some of the others: at a simultaneous start they find each other so, long before
// the store lists them.
func (c *crowd) join(id chunk.ObjectID, self *nodepb.PeerInfo) (others []*nodepb.PeerInfo, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects == nil {
		c.objects = map[chunk.ObjectID][]*nodepb.PeerInfo{}
	}
	here := c.objects[id]
	near := func(i int) bool { return here[i].Zone == self.Zone }
	for _, i := range chunk.Introductions(rand.Perm(len(here)), near) {
		others = append(others, here[i])
	}
	c.objects[id] = append(here, self)
	return others, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		left := c.objects[id]
		for i, p := range left {
			if p == self {
				left[i] = left[len(left)-1]
				left = left[:len(left)-1]
				break
			}
		}
		if c.objects[id] = left; len(left) == 0 {
			delete(c.objects, id)
		}
	}
}

// size returns how many follow an object.
func (c *crowd) size(id chunk.ObjectID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects[id])
}

// asker returns how to reach the node that a verified call comes from, if it
// says so: nobody speaks for another node.
func asker(ctx context.Context, p *nodepb.PeerInfo) (chunk.Peer, bool) {
	peer, ok := peerFrom(p)
	md, _ := metadata.FromIncomingContext(ctx)
	from := md.Get(rdma.HeaderFrom)
	return peer, ok && len(from) == 1 && from[0] == peer.Node.String()
}

// peerFrom reads how to reach a node; false if it is of no use.
func peerFrom(p *nodepb.PeerInfo) (chunk.Peer, bool) {
	if p == nil || len(p.Addrs) == 0 || len(p.Addrs) > 8 || len(p.Name) > 256 || len(p.Zone) > 256 {
		return chunk.Peer{}, false
	}
	id, err := chunk.NodeIDFrom(p.Node)
	if err != nil || id.IsZero() {
		return chunk.Peer{}, false
	}
	for k, v := range p.Addrs {
		if len(k) > 64 || len(v) > 512 {
			return chunk.Peer{}, false
		}
	}
	return chunk.Peer{Node: id, Incarnation: p.Incarnation, Name: p.Name, Zone: p.Zone, Addrs: p.Addrs}, true
}

// peerInfo writes how to reach a node.
func peerInfo(p chunk.Peer) *nodepb.PeerInfo {
	return &nodepb.PeerInfo{Node: p.Node[:], Incarnation: p.Incarnation, Name: p.Name, Zone: p.Zone, Addrs: p.Addrs}
}

// admit waits until a block may be sent to another node.
func (n *Node) admit(ctx context.Context, from chunk.NodeID, ref chunk.BlockRef) (done func(), err error) {
	info, _ := n.cache.Stat(ref.Object)
	return n.sends.Admit(ctx, chunk.Upload{
		Object: ref.Object, Block: ref.Index, From: from, Demand: ref.Demand, Whole: info.Complete,
	})
}

// meet has the engine know of a node that follows an object here.
func (n *Node) meet(o chunk.ObjectID, p chunk.Peer) {
	if e := n.fetching.Load(); e != nil {
		e.Introduce(o, p)
	}
}
