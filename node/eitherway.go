package node

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/verbs"
)

// fetcher is how blocks come from other nodes.
type fetcher interface {
	chunk.Transport
	chunk.Streamer
}

// eitherWay fetches by RDMA from nodes that have it. What RDMA itself fails at
// comes over TCP, in the same fetch.
type eitherWay struct {
	tcp   fetcher
	verbs chunk.Transport
	log   *slog.Logger
}

var _ fetcher = (*eitherWay)(nil)

// Fetch implements chunk.Transport.
func (e *eitherWay) Fetch(ctx context.Context, from chunk.Peer, refs []chunk.BlockRef) (chunk.Lease, error) {
	if from.Addrs[verbs.Protocol] == "" {
		return e.tcp.Fetch(ctx, from, refs)
	}
	l, err := e.verbs.Fetch(ctx, from, refs)
	if err == nil || !e.overTCP(ctx, err) {
		return l, err
	}
	l, again := e.tcp.Fetch(ctx, from, refs)
	if again != nil {
		return nil, both(again, err)
	}
	return l, nil
}

// FetchTo implements chunk.Streamer. A block that came by RDMA lies in memory
// as a whole and is handed on at once.
func (e *eitherWay) FetchTo(ctx context.Context, from chunk.Peer, ref chunk.BlockRef, put func([]byte) error) (chunk.Received, error) {
	if from.Addrs[verbs.Protocol] == "" {
		return e.tcp.FetchTo(ctx, from, ref, put)
	}
	l, err := e.verbs.Fetch(ctx, from, []chunk.BlockRef{ref})
	if err != nil {
		if !e.overTCP(ctx, err) {
			return chunk.Received{}, err
		}
		b, again := e.tcp.FetchTo(ctx, from, ref, put)
		if again != nil {
			return chunk.Received{}, both(again, err)
		}
		return b, nil
	}
	defer l.Release()
	b := l.Blocks()[0]
	if !b.Zero {
		if err := put(b.Data); err != nil {
			return chunk.Received{}, fmt.Errorf("hand on block %d of %s: %w", ref.Index, ref.Object.Short(), err)
		}
	}
	b.Data = nil
	return b, nil
}

// overTCP says whether what failed may be had over TCP.
func (e *eitherWay) overTCP(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !verbs.Elsewhere(err) {
		return false
	}
	e.log.Debug("a block comes over TCP after all", "err", err)
	return true
}

// both keeps the kind of TCP's error, which is the one that counts, and says
// what was wrong with RDMA.
func both(tcp, rdma error) error { return fmt.Errorf("%w (and before: %s)", tcp, rdma.Error()) }

// transferred returns the counters of all transports together.
func (n *Node) transferred() rdma.Stats {
	s, r := n.traffic.Stats(), n.rdmaTraffic.Stats()
	s.ReceivedBytes += r.ReceivedBytes
	s.SentBytes += r.SentBytes
	s.Requests += r.Requests
	s.Errors += r.Errors
	s.Corrupt += r.Corrupt
	s.Served += r.Served
	s.Refused += r.Refused
	s.ServeErrors += r.ServeErrors
	return s
}

// exchanged returns the bytes exchanged with each node by all transports.
func (n *Node) exchanged() map[chunk.NodeID]rdma.PeerBytes {
	all := n.traffic.Peers()
	for id, b := range n.rdmaTraffic.Peers() {
		sum := all[id]
		sum.Received += b.Received
		sum.Sent += b.Sent
		all[id] = sum
	}
	return all
}
