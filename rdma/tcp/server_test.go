package tcp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/tcp"
)

const (
	soon  = 2 * time.Minute
	stall = 300 * time.Millisecond
	large = 512 << 10
	// patient is a bound on progress far from what a busy machine needs.
	patient = 20 * time.Second
)

// bed is one honest server and what it takes to ask it.
type bed struct {
	source  *rdmatest.Source
	server  rdma.Credentials
	client  rdma.Credentials
	auth    *rdma.Auth // the client's
	counted *rdma.Counters
	node
}

func newBed(t testing.TB, change func(*tcp.HandlerConfig, *http.Server) func(net.Listener) net.Listener) *bed {
	b := &bed{source: rdmatest.NewSource(t), counted: new(rdma.Counters)}
	b.server = rdma.Credentials{Cluster: chunk.NewClusterID(), Secret: rdmatest.RandomBytes(1, 32), Self: chunk.NewNodeID(), Incarnation: 12}
	b.client = b.server
	b.client.Self, b.client.Incarnation = chunk.NewNodeID(), 13
	own, err := rdma.NewAuth(b.server)
	require.NoError(t, err)
	b.auth, err = rdma.NewAuth(b.client)
	require.NoError(t, err)
	cfg := tcp.HandlerConfig{Source: b.source, Auth: own, Counters: b.counted, Log: testLog(t)}
	srv := tcp.NewServer(nil, testLog(t))
	wrap := func(l net.Listener) net.Listener { return l }
	if change != nil {
		if w := change(&cfg, srv); w != nil {
			wrap = w
		}
	}
	srv.Handler = tcp.NewHandler(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(wrap(l)) }()
	t.Cleanup(func() {
		_ = srv.Close()
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	b.node = node{creds: b.server, addr: l.Addr().String(), stop: func() {}}
	return b
}

// at returns the peer as reached through another address.
func (b *bed) at(addr string) chunk.Peer {
	p := b.Peer()
	p.Addrs = map[string]string{tcp.Protocol: addr}
	return p
}

func (b *bed) newClient(t testing.TB, change func(*tcp.ClientConfig)) *tcp.Client {
	cfg := tcp.ClientConfig{Auth: b.auth, StallTimeout: patient, Log: testLog(t)}
	if change != nil {
		change(&cfg)
	}
	return newClient(t, cfg)
}

// head returns the headers of a good request.
func (b *bed) head() map[string]string {
	h := map[string]string{"Host": "x"}
	b.auth.Claim(b.Peer()).Each(func(k, v string) { h[k] = v })
	return h
}

func requestText(line string, head map[string]string) string {
	var s strings.Builder
	s.WriteString(line + "\r\n")
	for k, v := range head {
		fmt.Fprintf(&s, "%s: %s\r\n", k, v)
	}
	s.WriteString("\r\n")
	return s.String()
}

// ask sends raw bytes and reads one answer; nil when the server hangs up.
func (b *bed) ask(t *testing.T, text string) *http.Response {
	c, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
	_, _ = io.WriteString(c, text) // the server may hang up before the end
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		require.Less(t, len(body), 257)
	}
	return resp
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	o := b.source.Add(rdmatest.RandomBytes(1, 4096), 4096)
	path := "/p2pfs/v1/objects/" + o.ID.String() + "/blocks/"
	good := "GET " + path + "0 HTTP/1.1"
	with := func(k, v string) map[string]string {
		h := b.head()
		if h[k] = v; v == "" {
			delete(h, k)
		}
		return h
	}
	require.Equal(t, 200, b.ask(t, requestText(good, b.head())).StatusCode)
	served := uint64(1) // it is counted once all of it is sent
	require.Eventually(t, func() bool { return uint64(b.counted.Stats().Served) == served }, soon, time.Millisecond)
	cases := []struct {
		name   string
		text   string
		status int // 0: hangs up
	}{
		{"no claim", requestText(good, map[string]string{"Host": "x"}), 401},
		{"no token", requestText(good, with("p2pfs-token", "")), 401},
		{"wrong token", requestText(good, with("p2pfs-token", strings.Repeat("0", 64))), 403},
		{"no sender", requestText(good, with("p2pfs-from", "")), 403},
		{"other protocol", requestText(good, with("p2pfs-proto", "2")), 403},
		{"other incarnation", requestText(good, with("p2pfs-incarnation", "99")), 421},
		{"other cluster", requestText(good, with("p2pfs-cluster", chunk.NewClusterID().String())), 421},
		{"no claim, odd path", requestText("GET /etc/passwd HTTP/1.1", map[string]string{"Host": "x"}), 401},
		{"other method", requestText("POST "+path+"0 HTTP/1.1", b.head()), 405},
		{"put", requestText("PUT "+path+"0 HTTP/1.1", b.head()), 405},
		{"a body", requestText(good, with("Content-Length", "5")) + "hello", 400},
		{"a query", requestText("GET "+path+"0?x=1 HTTP/1.1", b.head()), 400},
		{"block below zero", requestText("GET "+path+"-1 HTTP/1.1", b.head()), 400},
		{"block beyond int32", requestText("GET "+path+"2147483648 HTTP/1.1", b.head()), 400},
		{"block beyond int64", requestText("GET "+path+"9223372036854775808 HTTP/1.1", b.head()), 400},
		{"escaped", requestText("GET "+path+"%30 HTTP/1.1", b.head()), 400},
		{"dots", requestText("GET /p2pfs/v1/objects/../../etc/passwd HTTP/1.1", b.head()), 400},
		{"version 2", requestText("GET /p2pfs/v2/objects/x HTTP/1.1", b.head()), 501},
		{"block not there", requestText("GET "+path+"1 HTTP/1.1", b.head()), 404},
		{"huge header", requestText(good, with("X", strings.Repeat("x", 64<<10))), 431},
		{"not HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls hello\r\n\r\n", 400},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 401},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			resp := b.ask(t, c.text)
			if resp == nil {
				require.Zero(t, c.status)
				return
			}
			require.Equal(t, c.status, resp.StatusCode)
			if c.status == 401 || c.status == 403 || c.status == 421 || c.status == 400 {
				require.True(t, resp.Close, "a stranger keeps its connection")
			}
		})
	}
	require.EqualValues(t, served, b.counted.Stats().Served)
	require.EqualValues(t, 9, b.counted.Stats().Refused)
}

func TestSlowHead(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(_ *tcp.HandlerConfig, s *http.Server) func(net.Listener) net.Listener {
		require.Equal(t, 5*time.Second, s.ReadHeaderTimeout)
		s.ReadHeaderTimeout = stall
		return nil
	})
	c, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost") // or it has hung up by now
	require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
	_, err = io.Copy(io.Discard, c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server keeps a stranger that says nothing")
}

// TestReaderTakesNothing: a reader that stops reading holds a block only so
// long.
func TestReaderTakesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *tcp.HandlerConfig, _ *http.Server) func(net.Listener) net.Listener {
		c.Stall = stall
		return nil
	})
	o := b.source.Add(bytes.Repeat([]byte{1}, chunk.MaxBlockSize), chunk.MaxBlockSize)
	c, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(16<<10))
	_, err = io.WriteString(c, requestText("GET /p2pfs/v1/objects/"+o.ID.String()+"/blocks/0 HTTP/1.1", b.head()))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		lent, released := b.source.Counts()
		return lent == 1 && released == 1
	}, soon, 10*time.Millisecond)
	require.Eventually(t, func() bool { return b.counted.Stats().ServeErrors == 1 }, soon, 10*time.Millisecond)
	require.Less(t, b.counted.Stats().SentBytes, uint64(o.Size))
}

// plainListener hides everything of its connections but net.Conn.
type plainListener struct{ net.Listener }

func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

// TestWithoutSendfile: a server whose connections are wrapped serves the same.
func TestWithoutSendfile(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(*tcp.HandlerConfig, *http.Server) func(net.Listener) net.Listener {
		return func(l net.Listener) net.Listener { return plainListener{l} }
	})
	c := b.newClient(t, nil)
	for _, size := range []int64{4096, large, 4 << 20} {
		o := b.source.Add(rdmatest.RandomBytes(2, size), size)
		l, err := c.Fetch(t.Context(), b.Peer(), []chunk.BlockRef{o.Ref(0)})
		require.NoError(t, err)
		require.True(t, string(b.source.Data(o.ID, 0)) == string(l.Blocks()[0].Data))
		l.Release()
		short := b.source.Add(rdmatest.RandomBytes(2, size), size)
		b.source.Truncate(short.ID, size/2)
		_, err = c.Fetch(t.Context(), b.Peer(), []chunk.BlockRef{short.Ref(0)})
		require.Error(t, err)
	}
}

// TestBesideHTTP2: the node's port speaks HTTP/2 as well, for its own calls.
func TestBesideHTTP2(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(_ *tcp.HandlerConfig, s *http.Server) func(net.Listener) net.Listener {
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
		return nil
	})
	o := b.source.Add(rdmatest.RandomBytes(2, large), large)
	require.NoError(t, b.fetch(t, b.newClient(t, nil), b.Peer(), o.Ref(0)))

	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.addr+"/p2pfs/v1/objects/"+o.ID.String()+"/blocks/0", nil)
	require.NoError(t, err)
	b.auth.Claim(b.Peer()).Each(r.Header.Set)
	resp, err := h2.RoundTrip(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, string(b.source.Data(o.ID, 0)) == string(body))
}
