package integration

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// fault is what a proxy does to the bytes a provider sends.
type fault int32

const (
	honest  fault = iota
	flipped       // some bytes are changed
	cut           // the connection ends, cleanly, in mid-answer
	reset         // it ends with a reset
	stuck         // nothing more comes
	garbage       // every answer is noise
)

// proxy stands between a provider and its readers: the provider listens on one
// port and advertises the proxy's.
type proxy struct {
	listener net.Listener
	target   string
	fault    atomic.Int32
	after    int64 // bytes of an answer stream that pass before the fault

	mu       sync.Mutex
	requests [][]byte // the first bytes of each connection, from the reader
	conns    []net.Conn
}

// startProxied starts a node behind a proxy.
func startProxied(c *cluster, name string, flags ...string) (*node, *proxy) {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(c.t, err)
	port := itoa(freePort(c.t))
	p := &proxy{listener: l, target: "127.0.0.1:" + port, after: 2000}
	go p.serve()
	c.t.Cleanup(p.close)
	return c.start(name, append(flags, "--listen=127.0.0.1:"+port, "--advertise="+l.Addr().String())...), p
}

func (p *proxy) set(f fault) { p.fault.Store(int32(f)) }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		n := len(p.requests)
		p.requests = append(p.requests, nil)
		p.mu.Unlock()
		go p.up(n, in, out)
		go p.down(in, out)
	}
}

// up passes what the reader sends, and remembers the beginning of it.
func (p *proxy) up(n int, in, out net.Conn) {
	defer out.Close()
	buf := make([]byte, 32<<10)
	for {
		k, err := in.Read(buf)
		p.mu.Lock()
		if have := p.requests[n]; len(have) < 4096 {
			p.requests[n] = append(have, buf[:k]...)
		}
		p.mu.Unlock()
		if _, werr := out.Write(buf[:k]); err != nil || werr != nil {
			return
		}
	}
}

// down passes what the provider answers, with the fault.
func (p *proxy) down(in, out net.Conn) {
	defer in.Close()
	buf, passed := make([]byte, 32<<10), int64(0)
	for {
		k, err := out.Read(buf)
		data := buf[:k]
		passed += int64(k)
		now := fault(p.fault.Load())
		if now == garbage {
			data = bytes.Repeat([]byte("\x00garbage\r\n"), k/10+1)
		}
		if passed > p.after {
			switch now {
			case flipped:
				if k > 3000 { // of a body, not of a header
					data[k/2] ^= 0x40
				}
			case cut:
				return
			case reset:
				_ = in.(*net.TCPConn).SetLinger(0)
				return
			case stuck:
				_, _ = io.Copy(io.Discard, out)
				return
			}
		}
		if _, werr := in.Write(data); err != nil || werr != nil {
			return
		}
	}
}

// blockRequest returns the beginning of a plain HTTP request for bytes.
func (p *proxy) blockRequest(t testing.TB) []byte {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if head, _, ok := bytes.Cut(r, []byte("\r\n\r\n")); ok && bytes.HasPrefix(head, []byte("GET /")) {
			return append(bytes.Clone(head), "\r\n\r\n"...)
		}
	}
	require.Fail(t, "no HTTP request for bytes was seen")
	return nil
}
