package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports are given to servers from below those that the kernel picks by itself:
// of the latter one is gone once a daemon or a connection of another test has
// got it while its server is down. With 10,000 more, the other port of a server
// of a Redis Cluster, they lie there, too.
const (
	firstPort = 12_000
	portCount = 10_000
)

// portPool gives every port once. Safe for concurrent use.
type portPool struct {
	mu    sync.Mutex
	next  int
	marks []net.Listener // never closed: a port is taken for the life of this process
}

func newPortPool() *portPool { return &portPool{next: os.Getpid() * 101 % portCount} }

// take returns a port of loopback that nobody listens on, and that no other run
// of these tests on this machine is given: an abstract socket marks it.
func (p *portPool) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range portCount {
		port := firstPort + p.next
		p.next = (p.next + 1) % portCount
		mark, err := net.Listen("unix", fmt.Sprintf("@p2pfs-test-port-%d", port))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			_ = mark.Close()
			continue
		}
		p.marks = append(p.marks, mark)
		return port, nil
	}
	return 0, errors.New("no port is free")
}

func anyPort() (int, error) { return world.ports.take() }

// freePort returns a port of loopback that nobody listens on, nor will.
func freePort(t testing.TB) int {
	t.Helper()
	port, err := anyPort()
	require.NoError(t, err)
	return port
}
