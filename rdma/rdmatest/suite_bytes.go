package rdmatest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

func testBytes(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	for _, size := range []int64{block, 64 << 10, 128 << 10, large, chunk.DefaultBlockSize} {
		o := b.source.Add(RandomBytes(1, 2*size), size)
		b.mustFetch(c, s.Peer(), o.Ref(0))
		b.mustFetch(c, s.Peer(), o.Ref(1))
		b.mustFetch(c, s.Peer(), o.Ref(1), o.Ref(0))
	}
	b.settled(c)
}

func testShortLast(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	for _, size := range []int64{block, large} {
		for _, over := range []int64{-1, 1, 2, size - 1, size + 1} {
			o := b.source.Add(RandomBytes(2, size+over), size)
			b.mustFetch(c, s.Peer(), refsOf(o)...)
		}
	}
	one := b.source.Add([]byte{9}, block)
	b.mustFetch(c, s.Peer(), one.Ref(0))
	b.settled(c)
}

func testZero(t *testing.T, b *bed) {
	for _, size := range []int64{block, large} {
		counters := new(rdma.Counters)
		s := b.serve()
		c := b.sys.Client(t, ClientConfig{Credentials: b.node(), Counters: counters, Stall: patient})
		data := append(make([]byte, 2*size+7), RandomBytes(3, 3*size)...)
		o := b.source.Add(append(data, make([]byte, 2*size)...), size)
		l, err := c.Fetch(t.Context(), s.Peer(), refsOf(o))
		require.NoError(t, err)
		b.check(l, refsOf(o)...)
		zeros := 0
		for _, r := range l.Blocks() {
			if r.Zero {
				zeros++
			}
		}
		l.Release()
		require.Equal(t, 4, zeros) // the last one is 7 bytes long
		require.EqualValues(t, int64(o.Blocks()-zeros)*size, counters.Stats().ReceivedBytes, "zeros must not travel")
		b.settled(c)
	}
}

func testMany(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	o := b.source.Add(RandomBytes(4, 40*block+5), block)
	p := b.source.Add(RandomBytes(5, 3*large), large)
	refs := append(refsOf(o), refsOf(p)...)
	refs = append(refs, o.Ref(3), o.Ref(3))
	b.mustFetch(c, s.Peer(), refs...)
	b.settled(c)
}

func testNone(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	l, err := c.Fetch(t.Context(), s.Peer(), nil)
	require.NoError(t, err)
	require.Empty(t, l.Blocks())
	l.Release()
	b.settled(c)
}

func testConcurrent(t *testing.T, b *bed) {
	// Less memory than the fetches want in all: they take turns.
	s, c := b.serve(), b.client(16*large)
	o := b.source.Add(RandomBytes(6, 48*block), block)
	p := b.source.Add(RandomBytes(7, 16*large), large)
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for i := range 64 {
		wg.Go(func() {
			refs := []chunk.BlockRef{o.Ref(i % 48), p.Ref(i % 16)}
			l, err := c.Fetch(t.Context(), s.Peer(), refs)
			if err != nil {
				errs <- err
				return
			}
			defer l.Release()
			for j, r := range l.Blocks() {
				if string(r.Data) != string(b.source.Data(refs[j].Object, refs[j].Index)) {
					errs <- fmt.Errorf("fetch %d: block %d differs", i, refs[j].Index)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	b.settled(c)
}

func testCounters(t *testing.T, b *bed) {
	sent, received := new(rdma.Counters), new(rdma.Counters)
	server, client := b.node(), b.node()
	s := b.sys.Serve(t, ServeConfig{Credentials: server, Source: b.source, Counters: sent})
	c := b.sys.Client(t, ClientConfig{Credentials: client, Counters: received, Stall: patient})
	o := b.source.Add(RandomBytes(8, 5*large+3), large)
	b.mustFetch(c, s.Peer(), refsOf(o)...)
	missing := chunk.BlockRef{Object: chunk.NewObjectID(), Len: block}
	require.ErrorIs(t, b.failFetch(c, s.Peer(), missing), chunk.ErrNotHeld)

	got := received.Stats()
	require.EqualValues(t, o.Size, got.ReceivedBytes)
	require.EqualValues(t, o.Blocks()+1, got.Requests)
	require.EqualValues(t, 1, got.Errors)
	require.Zero(t, got.Corrupt)
	require.EqualValues(t, o.Size, received.Peers()[server.Self].Received)
	require.Eventually(t, func() bool {
		got := sent.Stats()
		return got.SentBytes == uint64(o.Size) && got.Served == uint64(o.Blocks()) && got.ServeErrors == 1
	}, soon, time.Millisecond)
	require.EqualValues(t, o.Size, sent.Peers()[client.Self].Sent)
	b.settled(c)
}
