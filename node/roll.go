package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

const (
	// rollKept is how long a node that ended is still shown unasked.
	rollKept = 7 * 24 * time.Hour
	// rollEvery is how often the roll is read for the case of an outage.
	rollEvery = time.Minute
	// enrollEvery is how often a node says that it still runs.
	enrollEvery = 12 * time.Hour
)

// roll is the nodes of the cluster as last read. Its zero value knows none.
// Safe for concurrent use.
type roll struct {
	mu    sync.Mutex
	at    time.Time // when it was read; zero: never
	nodes []meta.NodeState
}

func (r *roll) set(nodes []meta.NodeState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes, r.at = nodes, time.Now()
}

func (r *roll) get() ([]meta.NodeState, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes, r.at
}

// runRoll reads the roll now and then until ctx ends: in an outage, who was
// there is still known. Once in a while it writes there that this node runs.
func (n *Node) runRoll(ctx context.Context) error {
	tick := time.NewTicker(rollEvery)
	defer tick.Stop()
	var enrolled time.Time
	for {
		if time.Since(enrolled) > enrollEvery && n.enroll(ctx) == nil {
			enrolled = time.Now()
		}
		bound, cancel := context.WithTimeout(ctx, n.cfg.MetaTimeout)
		nodes, err := n.catalog.Nodes(bound)
		cancel()
		if err == nil {
			n.roll.set(nodes)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// enroll writes on the roll that this node runs.
func (n *Node) enroll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.MetaTimeout)
	defer cancel()
	if err := n.catalog.CheckStore(ctx); err != nil {
		return err
	}
	return n.catalog.Enroll(ctx, n.nodeInfo())
}

// peerList describes the nodes of the cluster and the bytes exchanged with
// each by this one; those that ended long ago only if all are asked for.
func (n *Node) peerList(ctx context.Context, all bool) (*nodepb.PeersReply, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.MetaTimeout)
	defer cancel()
	r := &nodepb.PeersReply{}
	nodes, err := n.catalog.Nodes(ctx)
	if err == nil {
		n.roll.set(nodes)
	} else {
		var at time.Time
		if nodes, at = n.roll.get(); at.IsZero() {
			return nil, err
		}
		r.Note = fmt.Sprintf("the metadata store cannot be asked, this is how things were at %s: %v", at.Format(time.TimeOnly), err)
	}
	traffic, links := n.exchanged(), n.links()
	for _, nd := range nodes {
		t := traffic[nd.Node]
		self := nd.Node == n.id
		if !all && !self && endedLongAgo(nd, time.Now()) {
			continue
		}
		p := &nodepb.PeersReply_Peer{
			Node: nd.Node.String(), Name: nd.Name, Zone: nd.Zone, Addrs: nd.Addrs, Alive: nd.Alive || self,
			ReceivedBytes: t.Received, SentBytes: t.Sent, Self: self, Link: links[nd.Node],
		}
		p.SeenUnixNs = nd.SeenS * int64(time.Second)
		r.Peers = append(r.Peers, p)
	}
	return r, nil
}

// links returns how fetching from each node goes that was asked for anything.
func (n *Node) links() map[chunk.NodeID]*nodepb.PeersReply_Link {
	peers := n.engine.Stats().Peers
	var all float64
	for _, p := range peers {
		if p.Penalty == 0 {
			all += p.Rate
		}
	}
	links := make(map[chunk.NodeID]*nodepb.PeersReply_Link, len(peers))
	for _, p := range peers {
		l := &nodepb.PeersReply_Link{
			Rate: p.Rate, InFlight: int64(p.InFlight), Blocks: p.Blocks, Strikes: int64(p.Failures),
			PenaltyNs: int64(p.Penalty), LastError: p.LastError,
		}
		if all > 0 && p.Penalty == 0 {
			l.Weight = p.Rate / all
		}
		links[p.Node] = l
	}
	return links
}

// endedLongAgo goes by when the node itself last said that it runs: for people
// only, since clocks differ.
func endedLongAgo(nd meta.NodeState, now time.Time) bool {
	return !nd.Alive && nd.SeenS != 0 && now.Sub(time.Unix(nd.SeenS, 0)) > rollKept
}
