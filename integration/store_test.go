package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ownStore gives a cluster an etcd of its own, to be stopped at will.
func ownStore(t *testing.T, c *cluster) *store {
	t.Helper()
	s := newStore(filepath.Join(c.dir, "etcd"))
	require.NoError(t, s.start())
	t.Cleanup(s.stop)
	c.url = s.url()
	return s
}

// outageBound is how long what needs a store that is away may take to fail: a dozen
// times what is promised, --meta-timeout.
const outageBound = time.Minute

// inTouch waits until nodes have found their store again: each by itself, some time
// after it is back. Only the store says of a name that there is none.
func inTouch(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, commandLimit, n.name+" is in touch with the store", func() bool {
			r := run(t, "stat", n.path("no such name"))
			require.NotZero(t, r.code)
			return strings.Contains(r.err, "No such file") && n.status().Meta.State == "up"
		})
	}
}

// outage is how long make test keeps the store away; make test-long 60 s.
const outage = 15 * time.Second

func TestAFrozenStoreIsSurvived(t *testing.T) { t.Parallel(); storeOutage(t, outage, true) }

func TestAStoppedStoreIsSurvived(t *testing.T) { t.Parallel(); storeOutage(t, outage, false) }

func storeOutage(t *testing.T, length time.Duration, freeze bool) {
	c := newCluster(t)
	s := ownStore(t, c)
	a, b := c.start("a"), c.start("b")
	held := registered(t, a, "d/held", 20*smallChunk, 1)
	known := registered(t, a, "d/known", 5*smallChunk, 2)
	registered(t, a, "e/unseen", 5*smallChunk, 3)
	require.Equal(t, held, digest(t, b.path("d/held")))
	b.waitLocal("d/held")
	sameAt(t, c.src("d/known"), b.path("d/known"), 0, 10)
	must(t, "ls", "-l", b.path("d"))

	began := time.Now()
	if freeze {
		s.freeze()
	} else {
		s.stop()
	}
	require.Equal(t, held, digest(t, b.path("d/held")), "held bytes")
	require.Equal(t, "held\nknown\n", must(t, "ls", b.path("d")), "listed names")
	require.Equal(t, known, digest(t, b.path("d/known")), "known peers")
	r := runCmd(t, outageBound, exec.Command("cat", b.path("e/unseen")))
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "Input/output error", "an outage looks like a missing file")
	r = runCmd(t, outageBound, exec.Command("stat", b.path("no such name")))
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "Input/output error", "an outage looks like a missing file")
	r = b.p2pfs("status")
	require.Zero(t, r.code, r.String())
	if !freeze { // seen at once
		require.NotEqual(t, "ok", b.status().Meta.State)
	}
	if rest := length - time.Since(began); rest > 0 {
		c.t.Logf("waiting %v", rest)
		a.proc.wait(rest)
	}
	require.Equal(t, held, digest(t, b.path("d/held")), "held bytes, after the leases ran out")

	if freeze {
		s.thaw()
	} else {
		require.NoError(t, s.start())
	}
	eventually(t, commandLimit, "everything again, without a remount", func() bool {
		return run(t, "cmp", c.src("e/unseen"), b.path("e/unseen")).code == 0
	})
	inTouch(t, a, b)
	eventually(t, commandLimit, "both nodes are announced again", func() bool {
		return len(a.stat("d/held").Providers) == 2 && len(b.stat("d/held").Providers) == 2
	})
	registered(t, a, "d/later", smallBlock, 4)
	must(t, "cmp", c.src("d/later"), b.path("d/later"))
	missing := run(t, "stat", b.path("no such name"))
	require.Contains(t, missing.err, "No such file")
}

func TestANodeStartsWithTheStoreDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := ownStore(t, c)
	a, b := c.start("a"), c.start("b")
	sum := registered(t, a, "d/f", 10*smallChunk, 1)
	registered(t, a, "e/unseen", 10*smallChunk, 2)
	require.Equal(t, sum, digest(t, b.path("d/f")))
	b.waitLocal("d/f")
	must(t, "ls", b.path("d"))
	b.stop()
	s.stop()

	b.start()
	require.Equal(t, sum, digest(t, b.path("d/f")), "held and named bytes")
	r := runCmd(t, outageBound, exec.Command("cat", b.path("e/unseen")))
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "Input/output error")
	b.stop()
	b.start()

	require.NoError(t, s.start())
	eventually(t, commandLimit, "everything again", func() bool {
		return run(t, "cmp", c.src("e/unseen"), b.path("e/unseen")).code == 0
	})
	s.stop()
	n := c.node("new") // it was never told the cluster's secret
	require.Contains(t, refused(t, n), "store")
	require.Empty(t, mountType(n.mnt))
	require.NoError(t, s.start())
	n.start()
	require.Equal(t, sum, hexOf([]byte(readBack(t, n.path("d/f"))))) // a and b may not be back yet
}

func TestTwoClustersShareAStoreByPrefix(t *testing.T) {
	t.Parallel()
	c, d := newCluster(t), newCluster(t)
	a, b := c.start("a"), d.start("b")
	one := registered(t, a, "f", smallBlock, 1)
	two := registered(t, b, "f", smallBlock, 2)
	require.Equal(t, one, digest(t, a.path("f")))
	require.Equal(t, two, digest(t, b.path("f")))
	require.NotEqual(t, a.stat("f").ID, b.stat("f").ID)
}

func TestTheSecretIsInNoLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--log-level=debug")
	a, p := startProxied(c, "a")
	b := c.start("b")
	registered(t, a, "f", 5*smallChunk, 1)
	digest(t, b.path("f"))
	token := headerOf(t, p.blockRequest(t), "token")
	for _, n := range []*node{a, b} {
		require.NotContains(t, string(content(t, n.logPath())), token)
	}
}
