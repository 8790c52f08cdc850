package tcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/tcp"
)

func pass(context.Context, int, int64, []byte) bool { return true }

func (b *bed) fetch(t *testing.T, c *tcp.Client, from chunk.Peer, refs ...chunk.BlockRef) error {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	l, err := c.Fetch(ctx, from, refs)
	require.NoError(t, ctx.Err(), "the fetch took too long")
	if err != nil {
		require.Zero(t, c.MemoryInUse())
		return err
	}
	defer l.Release()
	for i, r := range l.Blocks() {
		require.Equal(t, refs[i], r.Ref)
		require.True(t, string(b.source.Data(r.Ref.Object, r.Ref.Index)) == string(r.Data), "wrong bytes")
	}
	return nil
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	p := rdmatest.NewProxy(t, b.addr, pass)
	c := b.newClient(t, nil)
	o := b.source.Add(rdmatest.RandomBytes(1, 4*large), large)
	missing := o.Ref(0)
	missing.Index = 99
	for i := range 12 {
		require.NoError(t, b.fetch(t, c, b.at(p.Addr()), o.Ref(i%4)))
		require.ErrorIs(t, b.fetch(t, c, b.at(p.Addr()), missing), chunk.ErrNotHeld)
	}
	require.Equal(t, 1, p.Conns())
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	p := rdmatest.NewProxy(t, b.addr, pass)
	c := b.newClient(t, func(c *tcp.ClientConfig) { c.ConnsPerPeer = 3 })
	o := b.source.Add(rdmatest.RandomBytes(1, 8*large), large)
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for i := range 64 {
		wg.Go(func() {
			l, err := c.Fetch(t.Context(), b.at(p.Addr()), []chunk.BlockRef{o.Ref(i % 8), o.Ref((i + 1) % 8)})
			if err == nil {
				l.Release()
			}
			errs <- err
		})
	}
	wg.Wait()
	for range 64 {
		require.NoError(t, <-errs)
	}
	require.LessOrEqual(t, p.Conns(), 3)
}

func TestFlippedBits(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	counted := new(rdma.Counters)
	for _, at := range []int64{1000, large / 2, large} { // all in the body
		p := rdmatest.NewProxy(t, b.addr, func(_ context.Context, _ int, off int64, p []byte) bool {
			if i := at - off; i >= 0 && i < int64(len(p)) {
				p[i] ^= 4
			}
			return true
		})
		c := b.newClient(t, func(c *tcp.ClientConfig) { c.Counters = counted })
		o := b.source.Add(rdmatest.RandomBytes(1, large), large)
		require.ErrorIs(t, b.fetch(t, c, b.at(p.Addr()), o.Ref(0)), chunk.ErrCorrupt)
	}
	require.EqualValues(t, 3, counted.Stats().Corrupt)
	require.EqualValues(t, 3*large, counted.Stats().ReceivedBytes, "what crossed the wire counts, good or not")
}

func TestResetAnywhere(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	b := newBed(t, nil)
	o := b.source.Add(rdmatest.RandomBytes(1, 2*large), large)
	for range 20 {
		at := r.Int64N(large)
		p := rdmatest.NewProxy(t, b.addr, func(_ context.Context, conn int, off int64, p []byte) bool {
			return conn > 0 || off+int64(len(p)) <= at
		})
		c := b.newClient(t, nil)
		require.Error(t, b.fetch(t, c, b.at(p.Addr()), o.Ref(0)), "reset at %d", at)
		require.NoError(t, b.fetch(t, c, b.at(p.Addr()), o.Ref(1)))
	}
}

// TestIdleReset: a kept connection that the peer has reset, or resets when it
// is used again, costs nothing but a new one.
func TestIdleReset(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	o := b.source.Add(rdmatest.RandomBytes(1, 2*4096), 4096)
	for _, late := range []bool{false, true} {
		h := hostile{source: b.source}
		s := rdmatest.NewRawServer(t, "", func(ctx context.Context, c *net.TCPConn) {
			in := bufio.NewReader(c)
			r, err := http.ReadRequest(in)
			if err != nil || !h.answer(ctx, c, r) {
				return
			}
			if late {
				_, _ = in.ReadByte() // of the second request
			}
			rdmatest.Reset(c)
		})
		c := b.newClient(t, nil)
		for i := range 6 {
			require.NoError(t, b.fetch(t, c, b.at(s.Addr()), o.Ref(i%2)))
		}
		require.Equal(t, 6, s.Conns())
	}
}

// TestSlowButMoving: what moves is not broken off, however long it takes.
func TestSlowButMoving(t *testing.T) {
	t.Parallel()
	const bound = 5 * time.Second
	b := newBed(t, nil)
	p := rdmatest.NewProxy(t, b.addr, func(ctx context.Context, _ int, _ int64, _ []byte) bool {
		select {
		case <-ctx.Done():
		case <-time.After(bound / 8):
		}
		return true
	})
	c := b.newClient(t, func(c *tcp.ClientConfig) { c.StallTimeout = bound })
	o := b.source.Add(rdmatest.RandomBytes(1, large/2), large/2)
	start := time.Now()
	require.NoError(t, b.fetch(t, c, b.at(p.Addr()), o.Ref(0)))
	require.Greater(t, time.Since(start), bound*3/2)
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	auth, err := rdma.NewAuth(b.server)
	require.NoError(t, err)
	n := serve(t, "[::1]:0", b.server, tcp.NewHandler(tcp.HandlerConfig{Source: b.source, Auth: auth}))
	require.Contains(t, n.addr, "[::1]:")
	c := b.newClient(t, nil)
	o := b.source.Add(rdmatest.RandomBytes(1, 4096), 4096)
	require.NoError(t, b.fetch(t, c, n.Peer(), o.Ref(0)))
	require.NoError(t, b.fetch(t, c, b.at(strings.Replace(n.addr, "::1", "::1%lo", 1)), o.Ref(0)))
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	c := b.newClient(t, nil)
	o := b.source.Add(rdmatest.RandomBytes(1, 4096), 4096)
	for _, addr := range []string{"", "nowhere", ":80", "host:", "::1:80", "[::1]", "a:b:c"} {
		require.ErrorContains(t, b.fetch(t, c, b.at(addr), o.Ref(0)), "address", "%q", addr)
	}
	for _, addr := range []string{"127.0.0.1:0", "127.0.0.1:99999", "a/b:1", "user@127.0.0.1:1", "127.0.0.1:1?x#y"} {
		require.Error(t, b.fetch(t, c, b.at(addr), o.Ref(0)), "%q", addr)
	}
	peer := b.at("127.0.0.1:1")
	peer.Name = "gpu7"
	err := b.fetch(t, c, peer, o.Ref(0))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorContains(t, err, "block 0 of "+o.ID.Short()+" from gpu7")
	require.NotErrorIs(t, err, chunk.ErrCorrupt)
}

// TestOddAnswers: answers that http understands or half understands.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	o := b.source.Add(rdmatest.RandomBytes(1, 4096), 4096)
	elsewhere := rdmatest.NewRawServer(t, "", func(context.Context, *net.TCPConn) {})
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"redirect":       {"HTTP/1.1 302 Found\r\nLocation: http://" + elsewhere.Addr() + "/\r\nContent-Length: 0\r\n\r\n", chunk.ErrCorrupt},
		"web server":     {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", chunk.ErrCorrupt},
		"bad status":     {"HTTP/1.1 abc\r\n\r\n", chunk.ErrCorrupt},
		"bad header":     {"HTTP/1.1 200 OK\r\n: x\r\n\r\n", chunk.ErrCorrupt},
		"two lengths":    {"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\nContent-Length: 5\r\n\r\n", chunk.ErrCorrupt},
		"ssh":            {"SSH-2.0-OpenSSH_9.2p1\r\n", chunk.ErrCorrupt},
		"nothing":        {"", nil},
		"half a head":    {"HTTP/1.1 200 OK\r\nP2pfs", nil},
		"endless head":   {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 10_000), chunk.ErrCorrupt},
		"endless status": {"HTTP/1.1 200 " + strings.Repeat("O", 1<<20), chunk.ErrCorrupt},
		"endless hints":  {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 1000), chunk.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rdmatest.NewRawServer(t, "", func(_ context.Context, conn *net.TCPConn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = conn.Write([]byte(c.text))
					_ = conn.CloseWrite()
					_, _ = conn.Read(make([]byte, 1))
				}
			})
			err := b.fetch(t, b.newClient(t, nil), b.at(s.Addr()), o.Ref(0))
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			require.NotErrorIs(t, err, chunk.ErrNotHeld)
		})
	}
	require.Zero(t, elsewhere.Conns())
}

// TestBytesAfterBody: a second answer nobody asked for is never taken for the
// next block.
func TestBytesAfterBody(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	s := rdmatest.NewRawServer(t, "", func(ctx context.Context, c *net.TCPConn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			h := hostile{source: b.source}
			h.answer(ctx, c, r)
			h.answer(ctx, c, r)
		}
	})
	c := b.newClient(t, nil)
	for i := range 8 {
		o := b.source.Add(rdmatest.RandomBytes(uint64(i), 50), 4096)
		if err := b.fetch(t, c, b.at(s.Addr()), o.Ref(0)); err != nil {
			require.ErrorIs(t, err, chunk.ErrCorrupt)
		}
	}
}

func TestDialIsBounded(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	o := b.source.Add(rdmatest.RandomBytes(1, 4096), 4096)
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c := b.newClient(t, func(c *tcp.ClientConfig) { c.Dial, c.DialTimeout = hang, stall/4 })
	err := b.fetch(t, c, b.Peer(), o.Ref(0))
	require.ErrorContains(t, err, "no answer in")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	var timeout net.Error
	require.True(t, errors.As(err, &timeout) && timeout.Timeout())

	c = b.newClient(t, func(c *tcp.ClientConfig) { c.Dial, c.DialTimeout = hang, time.Hour })
	done := make(chan error, 1)
	go func() {
		_, err := c.Fetch(t.Context(), b.Peer(), []chunk.BlockRef{o.Ref(0)})
		done <- err
	}()
	require.Eventually(t, func() bool { return c.MemoryInUse() > 0 }, soon, time.Millisecond)
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-done, chunk.ErrClosed)
}

func TestClientNeedsAuth(t *testing.T) {
	t.Parallel()
	_, err := tcp.NewClient(tcp.ClientConfig{})
	require.Error(t, err)
}

// TestNothingStays: after a churn of peers that come and go, nothing of them
// is left.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	c := b.newClient(t, func(c *tcp.ClientConfig) { c.IdleTimeout = stall })
	o := b.source.Add(rdmatest.RandomBytes(1, large), large)
	for i := range 10 {
		p := rdmatest.NewProxy(t, b.addr, pass)
		require.NoError(t, b.fetch(t, c, b.at(p.Addr()), o.Ref(0)), fmt.Sprint(i))
		if i%2 == 0 {
			p.Stop()
		}
	}
	require.Eventually(t, func() bool { return tcp.Leftovers(c) == 0 }, soon, 10*time.Millisecond)
}
