package metatest

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// Network has one client's links to several servers: for clients that hear from
// the servers which others there are.
type Network struct{ links map[string]*Proxy } // by the server's host:port

// NewNetwork starts a proxy of each server. The test's end ends them.
func NewNetwork(t testing.TB, servers ...*Redis) *Network {
	t.Helper()
	n := &Network{links: make(map[string]*Proxy)}
	for _, s := range servers {
		n.links[s.Addr()] = NewProxy(t, s.Addr())
	}
	return n
}

// Networks starts one for each client.
func Networks(t testing.TB, servers ...*Redis) []*Network {
	t.Helper()
	var out []*Network
	for range linClients {
		out = append(out, NewNetwork(t, servers...))
	}
	return out
}

// Dial connects to a server over its link. A server that there is no link to
// cannot be reached: nothing goes past the links.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p := n.links[addr]
	if p == nil {
		return nil, fmt.Errorf("there is no link to %s", addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, p.Addr())
}

// Set changes all links.
func (n *Network) Set(l Link) {
	for _, p := range n.links {
		p.Set(l)
	}
}

// To returns the link to a server.
func (n *Network) To(s *Redis) *Proxy { return n.links[s.Addr()] }
