package rdmatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

func testHostile(t *testing.T, b *bed) {
	cases := []struct {
		fault Fault
		want  error // nil: any
	}{
		{ShortBody, nil},
		{EndlessBody, chunk.ErrCorrupt},
		{Garbage, chunk.ErrCorrupt},
		{WrongBlock, chunk.ErrCorrupt},
		{WrongSum, chunk.ErrCorrupt},
		{OtherNode, chunk.ErrWrongNode},
		{ResetInBody, nil},
		{HangAtOnce, chunk.ErrStalled},
		{HangInBody, chunk.ErrStalled},
	}
	for _, k := range cases {
		t.Run(string(k.fault), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, b.sys)
			bad := b.sys.Hostile(t, k.fault, ServeConfig{Credentials: b.node(), Source: b.source})
			bound := patient
			if k.want == chunk.ErrStalled {
				bound = stall
			}
			c := b.sys.Client(t, ClientConfig{Credentials: b.node(), Stall: bound})
			good := b.serve()
			o := b.source.Add(RandomBytes(1, 4*large), large)
			for range 2 {
				err := b.failFetch(c, bad.Peer(), o.Ref(0))
				if k.want != nil {
					require.ErrorIs(t, err, k.want)
				}
				require.Zero(t, c.MemoryInUse())
			}
			b.failFetch(c, bad.Peer(), refsOf(o)...)
			b.mustFetch(c, good.Peer(), refsOf(o)...)
			b.settled(c)
		})
	}
}

func testCancel(t *testing.T, b *bed) {
	for _, fault := range []Fault{HangAtOnce, HangInBody} {
		bad := b.sys.Hostile(t, fault, ServeConfig{Credentials: b.node(), Source: b.source})
		c := b.sys.Client(t, ClientConfig{Credentials: b.node(), Stall: time.Hour})
		o := b.source.Add(RandomBytes(1, 2*large), large)
		for _, refs := range [][]chunk.BlockRef{{o.Ref(0)}, refsOf(o)} {
			ctx, cancel := context.WithTimeout(t.Context(), stall/16)
			start := time.Now()
			_, err := c.Fetch(ctx, bad.Peer(), refs)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(start), soon)
		}
		b.settled(c)
	}
	// One that ended before it began asks nobody.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, c := b.serve(), b.client(0)
	o := b.source.Add(RandomBytes(1, block), block)
	_, err := c.Fetch(ctx, s.Peer(), []chunk.BlockRef{o.Ref(0)})
	require.ErrorIs(t, err, context.Canceled)
	b.settled(c)
}

func testMemory(t *testing.T, b *bed) {
	const slots = 4
	s, c := b.serve(), b.client(slots*block)
	o := b.source.Add(RandomBytes(1, (slots+1)*block), block)
	var leases []chunk.Lease
	for i := range slots {
		l, err := c.Fetch(t.Context(), s.Peer(), []chunk.BlockRef{o.Ref(i)})
		require.NoError(t, err)
		leases = append(leases, l)
	}
	require.EqualValues(t, slots*block, c.MemoryInUse())

	last := []chunk.BlockRef{o.Ref(slots)}
	ctx, cancel := context.WithTimeout(t.Context(), stall/32)
	defer cancel()
	_, err := c.Fetch(ctx, s.Peer(), last)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	done := make(chan error, 1)
	go func() {
		l, err := c.Fetch(t.Context(), s.Peer(), last)
		if err == nil {
			l.Release()
		}
		done <- err
	}()
	for i, l := range leases {
		b.check(l, o.Ref(i))
		l.Release()
	}
	require.NoError(t, <-done)
	b.settled(c)
}

func testCloseHung(t *testing.T, b *bed) {
	for _, fault := range []Fault{HangAtOnce, HangInBody} {
		bad := b.sys.Hostile(t, fault, ServeConfig{Credentials: b.node(), Source: b.source})
		c := b.sys.Client(t, ClientConfig{Credentials: b.node(), Stall: time.Hour})
		o := b.source.Add(RandomBytes(1, large), large)
		done := make(chan error, 1)
		go func() {
			_, err := c.Fetch(context.WithoutCancel(t.Context()), bad.Peer(), []chunk.BlockRef{o.Ref(0)})
			done <- err
		}()
		require.Eventually(t, func() bool { return c.MemoryInUse() > 0 }, soon, time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		select {
		case err := <-closed:
			require.NoError(t, err)
		case <-time.After(soon):
			t.Fatal("Close hangs with its peer")
		}
		require.ErrorIs(t, <-done, chunk.ErrClosed)
		_, err := c.Fetch(t.Context(), bad.Peer(), []chunk.BlockRef{o.Ref(0)})
		require.ErrorIs(t, err, chunk.ErrClosed)
		require.NoError(t, c.Close())
		b.settled(c)
	}
}

func testCloseLease(t *testing.T, b *bed) {
	s, c := b.serve(), b.client(0)
	o := b.source.Add(RandomBytes(1, 2*large), large)
	l, err := c.Fetch(t.Context(), s.Peer(), refsOf(o))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	b.check(l, refsOf(o)...)
	l.Release()
	b.settled(c)
}
