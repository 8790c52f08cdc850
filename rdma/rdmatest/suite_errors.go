package rdmatest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

func testAllOrNone(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	o := b.source.Add(RandomBytes(1, 8*block), block)
	refs := refsOf(o)
	refs[5].Index = 1000
	require.ErrorIs(t, b.failFetch(c, s.Peer(), refs...), chunk.ErrNotHeld)
	b.settled(c)
	b.mustFetch(c, s.Peer(), refsOf(o)...)
}

func testSourceErrors(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	o := b.source.Add(RandomBytes(1, large), large)
	for _, want := range []error{chunk.ErrNotHeld, chunk.ErrSourceChanged, chunk.ErrDamaged} {
		b.source.OnBlock(func(chunk.ObjectID, int) error { return fmt.Errorf("open the source: %w", want) })
		require.ErrorIs(t, b.failFetch(c, s.Peer(), o.Ref(0)), want)
	}
	b.source.OnBlock(func(chunk.ObjectID, int) error { return errors.New("disk on fire") })
	err := b.failFetch(c, s.Peer(), o.Ref(0))
	for _, kind := range []error{chunk.ErrNotHeld, chunk.ErrCorrupt, chunk.ErrRefused, chunk.ErrWrongNode} {
		require.NotErrorIs(t, err, kind)
	}
	b.source.OnBlock(nil)
	b.mustFetch(c, s.Peer(), o.Ref(0))
	b.settled(c)
}

// testChanged: bytes whose source changed while they were on their way are
// never handed out, even when they match their sum.
func testChanged(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	for _, size := range []int64{block, large} {
		o := b.source.Add(RandomBytes(1, 2*size), size)
		zero := b.source.Add(make([]byte, size), size)
		b.source.OnRelease(func() error { return fmt.Errorf("check the source: %w", chunk.ErrSourceChanged) })
		b.failFetch(c, s.Peer(), o.Ref(0))
		b.failFetch(c, s.Peer(), o.Ref(0), o.Ref(1))
		b.failFetch(c, s.Peer(), zero.Ref(0))
		b.source.OnRelease(nil)
		b.mustFetch(c, s.Peer(), o.Ref(0))
		b.settled(c)
	}
}

func testTruncated(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	for _, size := range []int64{block, large} {
		for _, left := range []int64{0, 1, size / 2, size - 1} {
			o := b.source.Add(RandomBytes(1, size), size)
			b.source.Truncate(o.ID, left)
			b.failFetch(c, s.Peer(), o.Ref(0))
		}
		b.settled(c)
	}
}

func testCredentials(t *testing.T, b *bed) {
	s := b.serve()
	o := b.source.Add(RandomBytes(1, block), block)
	own := b.node()
	cases := []struct {
		name   string
		change func(*rdma.Credentials, *chunk.Peer)
		want   error
	}{
		{"other secret", func(c *rdma.Credentials, _ *chunk.Peer) { c.Secret = RandomBytes(99, 32) }, chunk.ErrRefused},
		{"other cluster", func(c *rdma.Credentials, _ *chunk.Peer) { c.Cluster = chunk.NewClusterID() }, chunk.ErrWrongNode},
		{"other node", func(_ *rdma.Credentials, p *chunk.Peer) { p.Node = chunk.NewNodeID() }, chunk.ErrWrongNode},
		{"earlier incarnation", func(_ *rdma.Credentials, p *chunk.Peer) { p.Incarnation-- }, chunk.ErrWrongNode},
		{"later incarnation", func(_ *rdma.Credentials, p *chunk.Peer) { p.Incarnation++ }, chunk.ErrWrongNode},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			creds, peer := own, s.Peer()
			k.change(&creds, &peer)
			c := b.sys.Client(t, ClientConfig{Credentials: creds, Stall: patient})
			require.ErrorIs(t, b.failFetch(c, peer, o.Ref(0)), k.want)
			b.settled(c)
		})
	}
	lent, _ := b.source.Counts()
	require.Zero(t, lent, "the source was asked on a stranger's behalf")
	c := b.sys.Client(t, ClientConfig{Credentials: own, Stall: patient})
	b.mustFetch(c, s.Peer(), o.Ref(0))
}

func testNoAddress(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	o := b.source.Add(RandomBytes(1, block), block)
	peer := s.Peer()
	peer.Addrs = map[string]string{"pigeon": "roof:1"}
	require.ErrorContains(t, b.failFetch(c, peer, o.Ref(0)), "address")
	b.settled(c)
}

func testImpossible(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(1<<20)
	o := b.source.Add(RandomBytes(1, block), block)
	for _, n := range []int64{0, -1, chunk.MaxBlockSize + 1, 1 << 62} {
		r := o.Ref(0)
		r.Len = n
		b.failFetch(c, s.Peer(), r)
	}
	r := o.Ref(0)
	r.Index = -1
	b.failFetch(c, s.Peer(), r)
	r = o.Ref(0)
	r.Len = 2 << 20
	require.ErrorIs(t, b.failFetch(c, s.Peer(), r), rdma.ErrTooLarge)
	b.mustFetch(c, s.Peer(), o.Ref(0))
	b.settled(c)
}

func testOtherLength(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	for _, size := range []int64{block, large} {
		o := b.source.Add(RandomBytes(1, size), size)
		z := b.source.Add(make([]byte, size), size)
		for _, n := range []int64{1, size - 1, size + 1, 2 * size} {
			for _, r := range []chunk.BlockRef{o.Ref(0), z.Ref(0)} {
				r.Len = n
				require.ErrorIs(t, b.failFetch(c, s.Peer(), r), chunk.ErrCorrupt)
			}
		}
	}
	b.settled(c)
}

func testNobody(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	o := b.source.Add(RandomBytes(1, block), block)
	s.Stop()
	b.failFetch(c, s.Peer(), o.Ref(0))
	b.settled(c)
}

// testRestart: kept connections to a node that is gone do not hurt, and its
// next incarnation is another node to those who ask for the old one.
func testRestart(t *testing.T, b *bed) {
	creds := b.node()
	s := b.sys.Serve(t, ServeConfig{Credentials: creds, Source: b.source})
	c := b.client(0)
	o := b.source.Add(RandomBytes(1, 4*block), block)
	b.mustFetch(c, s.Peer(), refsOf(o)...)
	old := s.Peer()
	s.Stop()
	creds.Incarnation++
	s = b.sys.Serve(t, ServeConfig{Credentials: creds, Source: b.source, Addr: addrOf(old)})
	b.mustFetch(c, s.Peer(), refsOf(o)...)
	require.ErrorIs(t, b.failFetch(c, old, o.Ref(0)), chunk.ErrWrongNode)
	b.mustFetch(c, s.Peer(), o.Ref(0))
	b.settled(c)
}

func addrOf(p chunk.Peer) string {
	for _, a := range p.Addrs {
		return a
	}
	return ""
}
