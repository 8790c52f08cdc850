//go:build rdma

package integration

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	rdmaA = "10.77.0.1" // of rxe0
	rdmaB = "10.77.0.2" // of rxe1, at the other end of the link
)

// rdmaPair starts two nodes, each with a device of its own.
func rdmaPair(t *testing.T, listenA, listenB string, flags ...string) (*cluster, *node, *node) {
	t.Helper()
	c := newCluster(t, append([]string{bigBlocks, "--insecure"}, flags...)...)
	a := c.start("a", "--protocol=rdma", "--rdma-device=rxe0", "--listen="+listenA)
	b := c.start("b", "--protocol=rdma", "--rdma-device=rxe1", "--listen="+listenB)
	return c, a, b
}

// randomFile makes a file of n bytes on a disk of the guest, and returns its
// path and its digest.
func randomFile(t *testing.T, c *cluster, name string, n int64) (path, digest string) {
	t.Helper()
	path = c.src(name)
	must(t, "sh", "-c", `head -c "$1" /dev/urandom >"$2"`, "sh", itoa(int(n)), path)
	return path, sum(t, path)
}

// sum is another process's look at a file.
func sum(t *testing.T, path string) string {
	t.Helper()
	return must(t, "sh", "-c", `sha256sum <"$1"`, "sh", path)
}

func tcpBytes(s status) int64 {
	return s.Counters["received_bytes"] - s.Counters["rdma_received_bytes"]
}

// A cold file that was registered in place crosses by one-sided READ, through
// the mount, and no byte of it over TCP.
func TestRDMARead(t *testing.T) {
	c, a, b := rdmaPair(t, rdmaA+":0", rdmaB+":0")
	const size = 200<<20 + 1
	src, want := randomFile(t, c, "model", size)
	a.register(src, "model")
	require.NoError(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0))
	start := time.Now()
	require.Equal(t, want, sum(t, b.path("model")))
	took := time.Since(start)
	s, p := b.status(), a.status()
	require.EqualValues(t, size, s.Counters["rdma_received_bytes"])
	require.Zero(t, tcpBytes(s), "bytes came over TCP")
	require.EqualValues(t, size, p.Counters["rdma_sent_bytes"])
	require.EqualValues(t, p.Counters["sent_bytes"], p.Counters["rdma_sent_bytes"])
	require.EqualValues(t, size, s.Counters["rdma_rail_rxe1_1_received_bytes"])
	require.EqualValues(t, 4, p.Counters["rdma_registrations"], "one for each chunk of 64 MiB")
	require.Zero(t, p.Counters["rdma_leases_expired"])
	report(t, "%d MiB by RDMA through the mount in %v, %.0f MB/s; control messages: %d and %d for %d blocks",
		size>>20, took.Round(time.Millisecond), float64(size)/1e6/took.Seconds(),
		s.Counters["rdma_messages"], p.Counters["rdma_messages"], s.Counters["blocks_fetched"])
}

// A read goes on over TCP when the link that RDMA uses is cut in its middle.
func TestRDMALinkCut(t *testing.T) {
	c, a, b := rdmaPair(t, "127.0.0.1:0", "127.0.0.1:0")
	src, want := randomFile(t, c, "model", 160<<20)
	a.register(src, "model")
	must(t, "tc", "qdisc", "add", "dev", "p0", "root", "tbf", "rate", "200mbit", "burst", "256kb", "latency", "200ms")
	t.Cleanup(func() {
		must(t, "tc", "qdisc", "del", "dev", "p0", "root")
		must(t, "ip", "link", "set", "p1", "up")
		must(t, "ip", "route", "replace", rdmaA, "dev", "p1", "src", rdmaB, "table", "101") // lost with the link
	})
	read := launch(t, exec.Command("sh", "-c", `sha256sum <"$1"`, "sh", b.path("model")))
	eventually(t, 60*time.Second, "some bytes by RDMA", func() bool { return b.status().Counters["rdma_received_bytes"] >= 8<<20 })
	must(t, "ip", "link", "set", "p1", "down")
	r := read.finish(t, 120*time.Second)
	require.Zero(t, r.code, "the read failed: %s", r)
	require.Equal(t, want, string(r.out))
	s := b.status()
	require.Positive(t, tcpBytes(s), "nothing came over TCP: was the link cut too late?")
	report(t, "%d MiB by RDMA, %d MiB over TCP", s.Counters["rdma_received_bytes"]>>20, tcpBytes(s)>>20)
}

// A node without RDMA and one with it read from each other.
func TestRDMAMixed(t *testing.T) {
	c := newCluster(t, bigBlocks)
	a := c.start("a", "--protocol=tcp")
	b := c.start("b", "--rdma-device=rxe1")
	for _, from := range []*node{a, b} {
		src, want := randomFile(t, c, "of-"+from.name, 9<<20)
		from.register(src, "of-"+from.name)
		for _, to := range []*node{a, b} {
			require.Equal(t, want, sum(t, to.path("of-"+from.name)))
			require.Zero(t, to.status().Counters["rdma_received_bytes"])
		}
	}
}

// Where RDMA cannot be used, rdma says why and does not start.
func TestRDMARefused(t *testing.T) {
	c := newCluster(t)
	for name, k := range map[string]struct {
		flags []string
		says  string
	}{
		"device": {[]string{"--rdma-device=rxe0", "--rdma-device=mlx5_9"}, "mlx5_9"},
		"index":  {[]string{"--rdma-device=rxe0", "--gid-index=99"}, "no GID with index 99"},
		"limit":  {[]string{"--download-limit=10MiB"}, "--download-limit"},
	} {
		t.Run(name, func(t *testing.T) {
			n := c.node("rdma-"+name, append(k.flags, "--protocol=rdma")...)
			r := runCmd(t, commandLimit, n.command(n.args...))
			require.NotZero(t, r.code)
			require.Contains(t, string(r.err), k.says)
			require.Contains(t, string(r.err), "--protocol rdma")
		})
	}
}

// Where RDMA cannot be used, auto says why and goes on over TCP.
func TestRDMAOverTCP(t *testing.T) {
	c := newCluster(t)
	n := c.start("auto", "--rdma-device=mlx5_9")
	log := tail(n.logPath(), 20)
	require.Contains(t, log, "blocks go over TCP")
	require.Contains(t, log, "mlx5_9")
	require.Equal(t, []string{"tcp"}, slices.Collect(maps.Keys(n.status().Node.Addrs)))
}
