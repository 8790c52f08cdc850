package tcp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/tcp"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestConformance(t *testing.T) {
	rdmatest.Run(t, func(testing.TB) rdmatest.System { return system{} })
}

// In pieces, everything holds but what is about lent memory.
func TestStreamed(t *testing.T) {
	rdmatest.Run(t, func(testing.TB) rdmatest.System { return rdmatest.Streamed{System: system{}} },
		"memory is bounded", "close with a lease out", "impossible blocks")
}

// system is the TCP transport as the suite sees it.
type system struct{}

// node is one serving node, honest or not.
type node struct {
	creds rdma.Credentials
	addr  string
	stop  func()
}

func (n node) Peer() chunk.Peer {
	return chunk.Peer{Node: n.creds.Self, Incarnation: n.creds.Incarnation, Addrs: map[string]string{tcp.Protocol: n.addr}}
}

func (n node) Stop() { n.stop() }

func (system) Serve(t testing.TB, cfg rdmatest.ServeConfig) rdmatest.Server {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	auth, err := rdma.NewAuth(cfg.Credentials)
	require.NoError(t, err)
	return serve(t, cfg.Addr, cfg.Credentials, tcp.NewHandler(tcp.HandlerConfig{
		Source: cfg.Source, Auth: auth, Counters: cfg.Counters, Log: testLog(t),
	}))
}

func serve(t testing.TB, addr string, creds rdma.Credentials, h http.Handler) node {
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	srv := tcp.NewServer(h, testLog(t))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			require.NoError(t, srv.Close())
			require.ErrorIs(t, <-done, http.ErrServerClosed)
		}
	}
	t.Cleanup(stop)
	return node{creds: creds, addr: l.Addr().String(), stop: stop}
}

func (system) Client(t testing.TB, cfg rdmatest.ClientConfig) rdmatest.Client {
	auth, err := rdma.NewAuth(cfg.Credentials)
	require.NoError(t, err)
	return newClient(t, tcp.ClientConfig{
		Auth: auth, Counters: cfg.Counters, Memory: cfg.Memory, StallTimeout: cfg.Stall, Log: testLog(t),
	})
}

func newClient(t testing.TB, cfg tcp.ClientConfig) *tcp.Client {
	c, err := tcp.NewClient(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// Hostile starts a server that reads requests as it should and answers them
// byte by byte as fault wants.
func (system) Hostile(t testing.TB, fault rdmatest.Fault, cfg rdmatest.ServeConfig) rdmatest.Server {
	h := hostile{fault: fault, source: cfg.Source.(*rdmatest.Source)}
	s := rdmatest.NewRawServer(t, cfg.Addr, func(ctx context.Context, c *net.TCPConn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil || !h.answer(ctx, c, r) {
				return
			}
		}
	})
	return node{creds: cfg.Credentials, addr: s.Addr(), stop: s.Stop}
}

type hostile struct {
	fault  rdmatest.Fault
	source *rdmatest.Source
}

// answer writes one answer; false hangs up.
func (h hostile) answer(ctx context.Context, c *net.TCPConn, r *http.Request) bool {
	part := strings.Split(r.URL.Path, "/")
	object, _ := chunk.ParseObjectID(part[4])
	index, _ := strconv.Atoi(part[6])
	body := h.source.Data(object, index)
	a := reply{
		incarnation: r.Header.Get(rdma.HeaderIncarnation), node: r.Header.Get(rdma.HeaderNode),
		block: part[4] + "/" + part[6], sum: chunk.Sum(body), length: strconv.Itoa(len(body)),
	}
	switch h.fault {
	case rdmatest.ShortBody:
		a.write(c, body[:len(body)-1])
		return false
	case rdmatest.EndlessBody:
		a.length = ""
		a.write(c, nil)
		piece := fmt.Appendf(nil, "%x\r\n%s\r\n", 1024, bytes.Repeat([]byte{'x'}, 1024))
		for {
			if _, err := c.Write(piece); err != nil {
				return false
			}
		}
	case rdmatest.Garbage:
		_, _ = c.Write(rdmatest.RandomBytes(5, 4096))
		return false
	case rdmatest.WrongBlock:
		a.block = part[4] + "/" + strconv.Itoa(index+1)
	case rdmatest.WrongSum:
		a.sum++
	case rdmatest.OtherNode:
		a.incarnation += "1"
	case rdmatest.ResetInBody:
		a.write(c, body[:len(body)/2])
		rdmatest.Reset(c)
		return false
	case rdmatest.HangAtOnce:
		<-ctx.Done()
		return false
	case rdmatest.HangInBody:
		a.write(c, body[:len(body)/2])
		<-ctx.Done()
		return false
	}
	a.write(c, body)
	return true
}

// reply is an answer to be written by hand.
type reply struct {
	node, incarnation, block, length string
	sum                              uint32
	extra                            string
}

func (a reply) write(c net.Conn, body []byte) {
	framing := "Transfer-Encoding: chunked"
	if a.length != "" {
		framing = "Content-Length: " + a.length
	}
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nP2pfs-Proto: 1\r\nP2pfs-Node: %s\r\nP2pfs-Incarnation: %s\r\nP2pfs-Block: %s\r\nP2pfs-Sum: %08x\r\n%s\r\n%s\r\n",
		a.node, a.incarnation, a.block, a.sum, framing, a.extra)
	_, _ = c.Write(append([]byte(head), body...)) // the client hangs up when it has seen enough
}

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
