package rdmatest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RawServer accepts TCP connections on addr ("" picks a loopback port) and
// hands each to serve, with a context that ends with the server. It closes a
// connection when serve returns.
type RawServer struct {
	listener net.Listener
	serve    func(ctx context.Context, c *net.TCPConn)
	life     context.Context // ends with Stop
	end      context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.TCPConn]struct{}
	count int
}

// NewRawServer starts a RawServer that ends with the test at the latest.
func NewRawServer(t testing.TB, addr string, serve func(ctx context.Context, c *net.TCPConn)) *RawServer {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	s := &RawServer{listener: l, serve: serve, conns: make(map[*net.TCPConn]struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	s.running.Go(s.accept)
	t.Cleanup(s.Stop)
	return s
}

// Addr returns where it listens.
func (s *RawServer) Addr() string { return s.listener.Addr().String() }

// Conns returns how many connections it has accepted.
func (s *RawServer) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Stop closes everything and waits for it. It may be called twice.
func (s *RawServer) Stop() {
	s.end()
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *RawServer) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		tc := c.(*net.TCPConn)
		s.mu.Lock()
		s.count++
		s.conns[tc] = struct{}{}
		s.mu.Unlock()
		s.running.Go(func() {
			stop := context.AfterFunc(s.life, func() { _ = tc.Close() })
			defer stop()
			s.serve(s.life, tc)
			s.mu.Lock()
			delete(s.conns, tc)
			s.mu.Unlock()
			_ = tc.Close()
		})
	}
}

// Reset makes closing c send an RST.
func Reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// Tamper looks at what a server answers on its way through a Proxy: the bytes
// p that begin at offset off of connection conn (both from 0). It may change
// and delay them; false breaks the connection with an RST instead.
type Tamper func(ctx context.Context, conn int, off int64, p []byte) bool

// NewProxy starts a RawServer that passes everything on to target, the
// answers by way of tamper.
func NewProxy(t testing.TB, target string, tamper Tamper) *RawServer {
	t.Helper()
	var mu sync.Mutex
	next := 0
	return NewRawServer(t, "", func(ctx context.Context, c *net.TCPConn) {
		mu.Lock()
		n := next
		next++
		mu.Unlock()
		up, err := net.Dial("tcp", target)
		if !assert.NoError(t, err) {
			return
		}
		server := up.(*net.TCPConn)
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		var asked sync.WaitGroup
		asked.Go(func() { pass(server, c, nil); _ = server.CloseWrite() })
		pass(c, server, func(off int64, p []byte) bool { return tamper(ctx, n, off, p) })
		_ = server.Close()
		_ = c.Close()
		asked.Wait()
	})
}

func pass(to, from *net.TCPConn, look func(off int64, p []byte) bool) {
	buf := make([]byte, 16<<10)
	off := int64(0)
	for {
		n, err := from.Read(buf)
		if n > 0 && look != nil && !look(off, buf[:n]) {
			Reset(to)
			return
		}
		off += int64(n)
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}
