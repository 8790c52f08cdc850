//go:build rdma

package integration

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rdmaHeld is what the kernel holds of the devices for their users: queues,
// connections, registrations, protection domains, opened devices.
func rdmaHeld(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(must(t, "rdma", "resource", "show"))
}

// slowLink keeps the link so slow that a READ can be caught in its middle.
func slowLink(t *testing.T, rate string) {
	t.Helper()
	must(t, "tc", "qdisc", "add", "dev", "p0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "200ms")
	t.Cleanup(func() { must(t, "tc", "qdisc", "del", "dev", "p0", "root") })
}

// Readers and providers that are killed in the middle of READs leave nothing
// behind, and the next reader is served.
func TestRDMAKilled(t *testing.T) {
	none := rdmaHeld(t)
	c, a, b := rdmaPair(t, "127.0.0.1:0", "127.0.0.1:0")
	slowLink(t, "100mbit")
	held, middle := "", 0
	for round := range rdmaKillRounds {
		name := fmt.Sprintf("model%d", round)
		src, want := randomFile(t, c, name, 24<<20)
		a.register(src, name)
		lent := a.status().Counters["rdma_leases"]
		read := launch(t, exec.Command("sh", "-c", `sha256sum <"$1"`, "sh", b.path(name)))
		eventually(t, 60*time.Second, "a READ", func() bool { return a.status().Counters["rdma_leases"] > lent })
		if read.alive() {
			middle++
		}
		victim := b
		if round%2 == 1 {
			victim = a
		}
		victim.kill()
		victim.start()
		read.finish(t, 120*time.Second) // whether it could go on is not judged: its only provider may be gone
		// Its provider may not be found again at once. Another process makes the sum:
		// this one's memory would be in as many pieces as a process in a guest may have.
		again := oncePossible(t, "sh", "-c", `sha256sum <"$1"`, "sh", b.path(name))
		require.Equal(t, want, again, "round %d, %s was killed", round, victim.name)
		require.Zero(t, a.status().Counters["rdma_leases_expired"])
		b.must("drop", b.path(name)) // a guest keeps all of it in memory
		must(t, "rm", src)
		switch round {
		case 1: // both have been killed once, and have served or read one file since
			held = rdmaHeld(t)
		case rdmaKillRounds - 1: // as then
			eventually(t, 60*time.Second, "what is held of the devices is as after the first rounds:\n"+held, func() bool { return rdmaHeld(t) == held })
		}
	}
	require.Greater(t, middle, rdmaKillRounds/2, "most were killed too late")
	a.stop()
	b.stop()
	eventually(t, 60*time.Second, "nothing is held that nobody has; at first there was: "+none, func() bool { return rdmaHeld(t) == none })
	report(t, "%d kills, %d of them while the file was being read; held before and after: %s", rdmaKillRounds, middle, strings.Join(strings.Fields(held), " "))
}
