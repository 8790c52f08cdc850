//go:build rdma

package integration

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A device that is deleted in the middle of a read hurts nobody: the kernel
// takes it away once nobody has it open, and refuses it to all others.
func TestRDMADeviceDeleted(t *testing.T) {
	for _, k := range []struct{ device, link, whose string }{{"rxe1", "p1", "reader"}, {"rxe0", "p0", "provider"}} {
		t.Run(k.whose, func(t *testing.T) {
			c, a, b := rdmaPair(t, "127.0.0.1:0", "127.0.0.1:0")
			src, want := randomFile(t, c, "model", 64<<20)
			a.register(src, "model")
			slowLink(t, "200mbit")
			read := launch(t, exec.Command("sh", "-c", `sha256sum <"$1"`, "sh", b.path("model")))
			eventually(t, 60*time.Second, "some bytes by RDMA", func() bool { return b.status().Counters["rdma_received_bytes"] >= 8<<20 })
			gone := launch(t, exec.Command("rdma", "link", "delete", k.device))
			r := read.finish(t, 120*time.Second)
			require.Zero(t, r.code, "the read failed: %s", r)
			require.Equal(t, want, string(r.out))
			s := b.status()
			report(t, "the %s's device deleted: %d MiB by RDMA, %d MiB over TCP; deleted before the nodes ended: %v",
				k.whose, s.Counters["rdma_received_bytes"]>>20, tcpBytes(s)>>20, !gone.alive())
			a.stop()
			b.stop()
			require.Zero(t, gone.finish(t, 60*time.Second).code)
			must(t, "rdma", "link", "add", k.device, "type", "rxe", "netdev", k.link)
		})
	}
}

// A read goes on over TCP when the interfaces are taken away that the devices
// are on, and with them the devices.
func TestRDMAInterfaceDeleted(t *testing.T) {
	c, a, b := rdmaPair(t, "127.0.0.1:0", "127.0.0.1:0")
	src, want := randomFile(t, c, "model", 64<<20)
	a.register(src, "model")
	must(t, "tc", "qdisc", "add", "dev", "p0", "root", "tbf", "rate", "100mbit", "burst", "256kb", "latency", "200ms")
	read := launch(t, exec.Command("sh", "-c", `sha256sum <"$1"`, "sh", b.path("model")))
	eventually(t, 60*time.Second, "some bytes by RDMA", func() bool { return b.status().Counters["rdma_received_bytes"] >= 8<<20 })
	gone := launch(t, exec.Command("ip", "link", "delete", "p0")) // ends when nobody has the devices open
	r := read.finish(t, 120*time.Second)
	require.Zero(t, r.code, "the read failed: %s", r)
	require.Equal(t, want, string(r.out))
	s := b.status()
	require.Positive(t, tcpBytes(s), "nothing came over TCP: was the device taken away too late?")
	report(t, "%d MiB by RDMA, %d MiB over TCP", s.Counters["rdma_received_bytes"]>>20, tcpBytes(s)>>20)
	a.stop()
	b.stop()
	require.Zero(t, gone.finish(t, 60*time.Second).code)
	eventually(t, 60*time.Second, "the devices are gone", func() bool { return must(t, "rdma", "link", "show") == "" })
	must(t, "ip", "link", "add", "p0", "mtu", "9000", "type", "veth", "peer", "name", "p1", "mtu", "9000")
	ends := []struct{ netdev, device, own, other, table string }{
		{"p0", "rxe0", rdmaA, rdmaB, "100"}, {"p1", "rxe1", rdmaB, rdmaA, "101"}, // as the guest had them
	}
	for _, end := range ends {
		must(t, "ip", "addr", "add", end.own+"/24", "dev", end.netdev)
		must(t, "ip", "link", "set", end.netdev, "up")
	}
	for _, end := range ends {
		must(t, "ip", "route", "replace", end.other, "dev", end.netdev, "src", end.own, "table", end.table)
		must(t, "rdma", "link", "add", end.device, "type", "rxe", "netdev", end.netdev)
	}
}

// A device that registers little at a time, and a budget that is smaller than
// the file: it crosses in parts.
func TestRDMASmallRegistrations(t *testing.T) {
	const size = 200<<20 + 1
	for _, k := range []struct {
		name, memory      string
		parts, again, tcp int64
	}{
		{"limit of 96 MiB", "288MiB", 4, 0, 0}, // half of what is left beside 96 MiB for fetched blocks
		// Room for two: one that a late block wants is made again, and a block that
		// finds both in use is not kept waiting.
		{"limit of 16 MiB", "64MiB", 13, 6, size / 4},
	} {
		t.Run(k.name, func(t *testing.T) {
			c, a, b := rdmaPair(t, rdmaA+":0", rdmaB+":0", "--rdma-memory="+k.memory)
			src, want := randomFile(t, c, "model", size)
			a.register(src, "model")
			require.Equal(t, want, sum(t, b.path("model")))
			s, p := b.status(), a.status()
			require.EqualValues(t, size, s.Counters["received_bytes"])
			require.LessOrEqual(t, tcpBytes(s), k.tcp, "bytes came over TCP")
			require.GreaterOrEqual(t, p.Counters["rdma_registrations"], k.parts)
			require.LessOrEqual(t, p.Counters["rdma_registrations"], k.parts+k.again)
		})
	}
}

// Where too little memory may be locked, rdma says so and does not start; auto
// goes on over TCP, whichever end it is.
func TestRDMASmallMemlock(t *testing.T) {
	c := newCluster(t, bigBlocks, "--insecure")
	few := []string{"setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "prlimit", "--memlock=1048576"}
	refused := c.node("refused", "--protocol=rdma", "--rdma-device=rxe0")
	refused.under = few
	r := runCmd(t, commandLimit, refused.daemon())
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "--protocol rdma")
	require.Contains(t, r.err, "ulimit -l unlimited")

	a := c.node("a", "--rdma-device=rxe0")
	a.under = few
	a.start()
	b := c.start("b", "--rdma-device=rxe1")
	require.Contains(t, tail(a.logPath(), 20), "ulimit -l unlimited")
	for _, pair := range [][2]*node{{a, b}, {b, a}} {
		from, to := pair[0], pair[1]
		src, want := randomFile(t, c, "of-"+from.name, 9<<20)
		from.register(src, "of-"+from.name)
		require.Equal(t, want, sum(t, to.path("of-"+from.name)))
		require.Zero(t, to.status().Counters["rdma_received_bytes"])
	}
}
