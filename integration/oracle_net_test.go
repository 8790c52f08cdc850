package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The two networks of a netlab: nodes reach each other on the one and the
// store on the other, so that either can fail for a node without the other.
const (
	peerNet  = "198.18.80"
	storeNet = "198.18.81"
	storeIP  = storeNet + ".2"
)

// netlab is hosts in network namespaces of their own, joined by two switches.
// A namespace lives as long as a process in it, so that nothing is left of
// them whatever way the tests end.
type netlab struct {
	t      *testing.T
	hub    *netHost
	nodes  []*netHost
	stored *netHost
}

// netHost is one namespace, held by a process that sleeps.
type netHost struct {
	holder *process
	index  int
}

func newNetlab(t *testing.T, nodes int) *netlab {
	t.Helper()
	l := &netlab{t: t}
	l.hub, l.stored = l.host(0), l.host(1)
	l.ip(l.hub, "link add peers type bridge", "link add store type bridge", "link set peers up", "link set store up")
	l.join(l.stored, "store", storeIP)
	for i := range nodes {
		h := l.host(10 + i)
		l.nodes = append(l.nodes, h)
		l.join(h, "peers", l.peerIP(i))
		l.join(h, "store", fmt.Sprintf("%s.%d", storeNet, h.index))
	}
	return l
}

func (l *netlab) peerIP(node int) string { return fmt.Sprintf("%s.%d", peerNet, 10+node) }

func (l *netlab) host(index int) *netHost {
	l.t.Helper()
	p, err := spawn(exec.Command("unshare", "--net", "sleep", "infinity"))
	require.NoError(l.t, err)
	l.t.Cleanup(p.kill)
	own, err := os.Readlink("/proc/thread-self/ns/net") // the main thread may have been left in another by dial
	require.NoError(l.t, err)
	h := &netHost{p, index}
	soon(l.t, time.Minute, "a network namespace", func() bool {
		link, err := os.Readlink(h.file())
		return err == nil && link != own
	})
	l.ip(h, "link set lo up")
	// What a lost link held back is sent again soon after it is whole.
	for key, value := range map[string]string{"tcp_rto_max_ms": "1000"} {
		l.must(h, "sh", "-c", fmt.Sprintf("[ ! -e /proc/sys/net/ipv4/%[1]s ] || echo %[2]s >/proc/sys/net/ipv4/%[1]s", key, value))
	}
	return h
}

func (h *netHost) file() string { return filepath.Join("/proc", itoa(h.holder.pid()), "ns/net") }

// command is a command that runs in the namespace.
func (h *netHost) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + h.file(), name}, args...)...)
}

func (l *netlab) must(h *netHost, name string, args ...string) {
	l.t.Helper()
	r := runCmd(l.t, commandLimit, h.command(name, args...))
	require.Zero(l.t, r.code, "%s %q: %s", name, args, r)
}

// ip runs several commands of ip(8) in a namespace.
func (l *netlab) ip(h *netHost, commands ...string) {
	l.t.Helper()
	cmd := h.command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	r := runCmd(l.t, commandLimit, cmd)
	require.Zero(l.t, r.code, "ip %q: %s", commands, r)
}

// join connects a host with a switch.
func (l *netlab) join(h *netHost, net, ip string) {
	l.t.Helper()
	port := l.port(h, net)
	l.ip(l.hub, fmt.Sprintf("link add %s type veth peer name %s netns %d", port, net, h.holder.pid()),
		fmt.Sprintf("link set %s master %s up", port, net))
	l.ip(h, fmt.Sprintf("addr add %s/24 dev %s", ip, net), fmt.Sprintf("link set %s up", net))
}

func (l *netlab) port(h *netHost, net string) string { return fmt.Sprintf("%s%d", net, h.index) }

// cut takes a host off a switch: nothing arrives any more, nothing says so.
func (l *netlab) cut(h *netHost, net string) {
	l.t.Helper()
	l.ip(l.hub, fmt.Sprintf("link set %s nomaster", l.port(h, net)))
}

func (l *netlab) heal(h *netHost, net string) {
	l.t.Helper()
	l.ip(l.hub, fmt.Sprintf("link set %s master %s", l.port(h, net), net))
}

// dial tries to connect from inside a namespace.
func (h *netHost) dial(address string) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this
		f, err := os.Open(h.file())
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			var conn net.Conn
			if conn, err = net.DialTimeout("tcp", address, 5*time.Second); err == nil {
				err = conn.Close()
			}
		}
		result <- err
	}()
	return <-result
}

// soon is eventually for what takes milliseconds.
func soon(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			require.Failf(t, "not in time", "%s within %v", what, limit)
		}
	}
}
