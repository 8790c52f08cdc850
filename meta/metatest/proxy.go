package metatest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Link is what a network does to the connections through a Proxy.
type Link int

// The states of a link.
const (
	// LinkOpen passes everything on.
	LinkOpen Link = iota
	// LinkSlow passes everything on, a tenth of a second late.
	LinkSlow
	// LinkReset ends connections with a reset, new ones at once.
	LinkReset
	// LinkSilent passes nothing on, in neither direction, as a network does
	// that drops packets. They come late, when it is over.
	LinkSilent
	// LinkMute passes on what is asked and holds the answers back.
	LinkMute
	// LinkHalfOpen makes the connections there are dead for good, of which
	// neither end is told, and lets new ones pass.
	LinkHalfOpen
)

// linkDelay is how late bytes come through a slow link.
const linkDelay = 100 * time.Millisecond

// Proxy stands between clients and one server, in this process, on loopback.
// Safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	link   Link
	closed bool
	change chan struct{} // closed and replaced when link changes
	pairs  map[*proxied]struct{}
}

// proxied is one connection through a proxy: to the client and to the server.
type proxied struct {
	in, out *net.TCPConn
	dead    chan struct{} // closed when it is half open
}

// NewProxy starts a proxy of the server at a host:port. The test's end ends it.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: l, target: target, change: make(chan struct{}), pairs: make(map[*proxied]struct{})}
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

// Addr returns the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set changes the link, for the connections there are, too.
func (p *Proxy) Set(l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = l
	close(p.change)
	p.change = make(chan struct{})
	for c := range p.pairs {
		switch l {
		case LinkReset:
			c.reset()
		case LinkHalfOpen:
			close(c.dead)
			delete(p.pairs, c) // its pumps swallow what comes, and end with their ends
			p.wg.Go(func() { p.bury(c) })
		}
	}
}

// bury closes a half open connection when the proxy is closed.
func (p *Proxy) bury(c *proxied) {
	for {
		_, change, closed := p.state()
		if closed {
			c.close()
			return
		}
		<-change
	}
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	close(p.change)
	p.change = make(chan struct{})
	for c := range p.pairs {
		c.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) state() (Link, <-chan struct{}, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link, p.change, p.closed
}

func (p *Proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		c := &proxied{in: in.(*net.TCPConn), dead: make(chan struct{})}
		if link, _, _ := p.state(); link == LinkReset {
			_ = c.in.SetLinger(0)
			_ = c.in.Close()
			continue
		}
		out, err := net.DialTimeout("tcp", p.target, soon)
		if err != nil { // nobody listens there
			_ = c.in.SetLinger(0)
			_ = c.in.Close()
			continue
		}
		c.out = out.(*net.TCPConn)
		p.mu.Lock()
		switch {
		case p.closed:
			c.close()
		case p.link == LinkReset: // since it was accepted
			c.reset()
		default:
			p.pairs[c] = struct{}{}
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.pump(c, c.in, c.out, false) })
		p.wg.Go(func() { p.pump(c, c.out, c.in, true) })
	}
}

// pump passes one direction of a connection on.
func (p *Proxy) pump(c *proxied, from, to *net.TCPConn, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.wait(c, answers) {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			p.mu.Lock()
			delete(p.pairs, c)
			p.mu.Unlock()
			c.close()
			return
		}
	}
}

// wait waits until what was read may be passed on; false: never.
func (p *Proxy) wait(c *proxied, answers bool) bool {
	for late := false; ; {
		link, change, closed := p.state()
		select {
		case <-c.dead:
			return false
		default:
		}
		switch {
		case closed:
			return true
		case link == LinkSlow && !late:
			late = true
			time.Sleep(linkDelay)
			continue
		case link == LinkSilent, link == LinkMute && answers:
		default:
			return true
		}
		<-change
	}
}

func (c *proxied) close() {
	_ = c.in.Close()
	_ = c.out.Close()
}

func (c *proxied) reset() {
	_ = c.in.SetLinger(0)
	_ = c.out.SetLinger(0)
	c.close()
}
