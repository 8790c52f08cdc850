package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/rdma"
)

const (
	// peerConns bounds the control connections kept to other nodes, but for those
	// in use.
	peerConns = 128
	// connectTimeout bounds one attempt to reach another node: what was sent while
	// the network was cut is not waited for much longer than the cut.
	connectTimeout = 3 * time.Second
	// helloTimeout bounds one short call to another node.
	helloTimeout = 2 * time.Second
	// bindTimeout bounds the reading of bindBytes by another node.
	bindTimeout = 30 * time.Second
	// mostNamed bounds how many others of an object are taken note of at a time.
	mostNamed = 32
	// keepTimeout bounds one change of who keeps an object: a sync of its
	// files and a change of the store.
	keepTimeout = 15 * time.Second
)

// peers talks to the peer service of other nodes. Safe for concurrent use.
type peers struct {
	auth rdma.Authorizer
	self *nodepb.PeerInfo // told to those that are followed for the engine; nil: not told
	// bound is how many connections are kept; more only while all are in use.
	bound int
	// connecting and hello are connectTimeout and helloTimeout.
	connecting, hello time.Duration

	mu    sync.Mutex
	conns map[string]*peerConn // by address
}

// peerConn is a control connection. failed: a call found no way to the node; that
// is known a moment before the connection's state says so.
type peerConn struct {
	*grpc.ClientConn
	failed bool // guarded by peers.mu
	users  int  // calls and streams under way; guarded by peers.mu
}

var _ chunk.Scout = (*peers)(nil)

func newPeers(auth rdma.Authorizer) *peers {
	return &peers{auth: auth, bound: peerConns, connecting: connectTimeout, hello: helloTimeout, conns: map[string]*peerConn{}}
}

// Close ends every connection.
func (p *peers) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.conns {
		errs = append(errs, c.Close())
	}
	clear(p.conns)
	return errors.Join(errs...)
}

// client returns a connection that works, is being made, or has not been tried
// yet: nothing is answered from an attempt that failed before it was asked, so
// that a node is there as soon as the network to it is whole again. It stays
// open until done is called, once, after the last use.
func (p *peers) client(to chunk.Peer) (client nodepb.PeerClient, done func(), err error) {
	addr := to.Addrs["tcp"]
	if addr == "" {
		return nil, nil, fmt.Errorf("node %s tells no tcp address", to.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.conns[addr]
	if ok && !c.leads() {
		c.Close()
		delete(p.conns, addr)
		ok = false
	}
	if !ok {
		p.shrink(p.bound - 1)
		conn, err := dial(addr, p.connecting)
		if err != nil {
			return nil, nil, fmt.Errorf("connect to node %s at %s: %w", to.Name, addr, err)
		}
		c = &peerConn{ClientConn: conn}
		p.conns[addr] = c
	}
	c.failed = false
	c.users++
	return nodepb.NewPeerClient(c), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.users--
	}, nil
}

// leads reports whether a call may find its way over the connection. peers.mu is
// held.
func (c *peerConn) leads() bool {
	s := c.GetState()
	return s == connectivity.Ready || !c.failed && s != connectivity.TransientFailure
}

// shrink closes connections, any that nobody uses, until at most keep are left
// or the rest is in use. p.mu is held.
func (p *peers) shrink(keep int) {
	for addr, c := range p.conns {
		if len(p.conns) <= keep {
			return
		}
		if c.users > 0 {
			continue
		}
		c.Close()
		delete(p.conns, addr)
	}
}

func dial(addr string, connecting time.Duration) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithIdleTimeout(time.Minute),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connecting}),
	)
}

// outgoing adds the identity of a call to its context.
func (p *peers) outgoing(ctx context.Context, to chunk.Peer) context.Context {
	return metadata.AppendToOutgoingContext(ctx, p.auth.Claim(to).Pairs()...)
}

// failure is peerError that remembers a connection that leads nowhere.
func (p *peers) failure(to chunk.Peer, err error) error {
	if status.Code(err) == codes.Unavailable {
		p.mu.Lock()
		if c := p.conns[to.Addrs["tcp"]]; c != nil {
			c.failed = true
		}
		p.mu.Unlock()
	}
	return peerError(to, err)
}

// peerError gives a gRPC error the meaning the engine knows.
func peerError(to chunk.Peer, err error) error {
	base := err
	switch status.Code(err) {
	case codes.NotFound:
		base = fmt.Errorf("%w: %w", chunk.ErrNotHeld, err)
	case codes.FailedPrecondition:
		base = fmt.Errorf("%w: %w", chunk.ErrWrongNode, err)
	case codes.Unauthenticated:
		base = fmt.Errorf("%w: %w", chunk.ErrRefused, err)
	case codes.InvalidArgument:
		base = fmt.Errorf("%w: %w", chunk.ErrCorrupt, err)
	}
	return fmt.Errorf("ask node %s (%s): %w", to.Name, to.Addrs["tcp"], base)
}

// Follow implements chunk.Scout. Whoever is followed may follow back.
func (p *peers) Follow(ctx context.Context, from chunk.Peer, o chunk.Object, on func(chunk.Availability) bool) error {
	return p.follow(ctx, from, o, p.self, on)
}

// follow does it, with self named as one that fetches the object unless it is
// nil.
func (p *peers) follow(ctx context.Context, from chunk.Peer, o chunk.Object, self *nodepb.PeerInfo, on func(chunk.Availability) bool) error {
	c, done, err := p.client(from)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancel(p.outgoing(ctx, from))
	defer cancel()
	stream, err := c.Follow(ctx, &nodepb.FollowRequest{Object: o.ID[:], Blocks: int64(o.Blocks()), Self: self})
	if err != nil {
		return p.failure(from, err)
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return p.failure(from, err)
		}
		news, err := availability(o, m, first)
		if err != nil {
			return fmt.Errorf("node %s: %w", from.Name, err)
		}
		if !on(news) {
			return nil
		}
	}
}

func availability(o chunk.Object, m *nodepb.Availability, first bool) (chunk.Availability, error) {
	news := chunk.Availability{Full: first, Keeper: m.Keeper}
	sent, err := blocksOf(o, m.Sent)
	if err != nil {
		return news, err
	}
	news.Sent = sent
	for _, p := range m.Peers[:min(len(m.Peers), mostNamed)] {
		if peer, ok := peerFrom(p); ok {
			news.Peers = append(news.Peers, peer)
		}
	}
	if first {
		have, err := chunk.BitmapFrom(m.Have, o.Blocks())
		if err != nil {
			return news, fmt.Errorf("%w: %w", chunk.ErrCorrupt, err)
		}
		news.Have = have
		return news, nil
	}
	news.Added, err = blocksOf(o, m.Added)
	return news, err
}

// blocksOf checks the numbers of blocks.
func blocksOf(o chunk.Object, said []int32) (blocks []int, err error) {
	for _, b := range said {
		if b < 0 || int(b) >= o.Blocks() {
			return nil, fmt.Errorf("%w: announces block %d of %d", chunk.ErrCorrupt, b, o.Blocks())
		}
		blocks = append(blocks, int(b))
	}
	return blocks, nil
}

// sums asks a node for the checksums of count blocks from first. With bind, it
// reads the blocks that have none.
func (p *peers) sums(ctx context.Context, from chunk.Peer, o chunk.Object, first, count int, bind bool) (map[int]uint32, error) {
	c, done, err := p.client(from)
	if err != nil {
		return nil, err
	}
	defer done()
	limit := p.hello
	if bind {
		limit = bindTimeout
	}
	ctx, cancel := context.WithTimeout(p.outgoing(ctx, from), limit)
	defer cancel()
	r, err := c.Sums(ctx, &nodepb.SumsRequest{Object: o.ID[:], First: int32(first), Count: int32(count), Bind: bind})
	if err != nil {
		return nil, p.failure(from, err)
	}
	known, err := chunk.BitmapFrom(r.Known, count)
	if err != nil || len(r.Sums) != count {
		return nil, fmt.Errorf("%w: checksums from node %s", chunk.ErrCorrupt, from.Name)
	}
	out := map[int]uint32{}
	for i, sum := range r.Sums {
		if known.Has(i) {
			out[first+i] = sum
		}
	}
	return out, nil
}

// keep asks a node to be a keeper of an object; it is one when the answer is
// nil. chunk.ErrNotHeld: not all of it is there.
func (p *peers) keep(ctx context.Context, from chunk.Peer, o chunk.Object) error {
	c, done, err := p.client(from)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(p.outgoing(ctx, from), keepTimeout)
	defer cancel()
	if _, err := c.Keep(ctx, &nodepb.KeepRequest{Object: o.ID[:], Set: o.Set[:], Size: o.Size}); err != nil {
		return p.failure(from, err)
	}
	return nil
}

// attend tells a node, until ctx ends, that what it holds of an object is
// wanted here. It returns early only when the node is gone or holds nothing.
func (p *peers) attend(ctx context.Context, from chunk.Peer, o chunk.Object) error {
	return p.follow(ctx, from, o, nil, func(chunk.Availability) bool { return true })
}

// holds asks a peer once how many blocks of an object it holds, and whether it
// keeps it. chunk.ErrNotHeld: nothing.
func (p *peers) holds(ctx context.Context, from chunk.Peer, o chunk.Object) (blocks int, keeper bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.hello)
	defer cancel()
	err = p.follow(ctx, from, o, nil, func(a chunk.Availability) bool {
		blocks, keeper = a.Have.Count(), a.Keeper
		return false
	})
	return blocks, keeper, err
}
