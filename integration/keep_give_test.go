package integration

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// K1, K2
func TestARegisteredCopyIsHandedOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--prefetch=off")
	a, b, r := c.start("a"), c.start("b"), c.start("r")
	sum := registered(t, a, "f", 5*smallChunk, 1)
	small := registered(t, a, "small", 100, 2)

	refused := a.p2pfs("unregister", "--keep-name", a.path("f"))
	require.NotZero(t, refused.code, "the only copy was given up")
	require.Contains(t, refused.err, "--force")
	sameAt(t, c.src("f"), b.path("f"), 0, smallBlock) // some of it is no copy
	require.NotZero(t, a.p2pfs("unregister", "--keep-name", a.path("f")).code)
	require.Equal(t, []string{"a"}, r.keepers("f"))

	b.must("get", b.path("f"))
	b.must("get", b.path("small"))
	a.waitHolder("f", "b")
	a.waitHolder("small", "b")
	a.must("unregister", "--keep-name", a.path("f"))
	a.must("unregister", "--keep-name", a.path("small"))
	require.Equal(t, []string{"b"}, r.keepers("f"))
	require.Equal(t, []string{"b"}, r.keepers("small"))
	require.NoError(t, os.Remove(c.src("f")))
	require.NoError(t, os.Remove(c.src("small")))
	require.Equal(t, sum, digest(t, r.path("f")))
	require.Equal(t, sum, digest(t, a.path("f")), "a reads it from b now")
	require.Equal(t, small, digest(t, r.path("small")))
	r.must("drop", r.path("f"))
	a.must("drop", a.path("f"))

	// b keeps it as if it had registered it: over a restart, and against drop.
	b.stop()
	b.start()
	require.Equal(t, []string{"b"}, b.keepers("f"))
	refused = b.p2pfs("drop", b.path("f"))
	require.NotZero(t, refused.code, "the only copy was dropped")
	require.Contains(t, refused.err, "--force")
	r.must("get", r.path("f"))
	b.waitHolder("f", "r")
	b.must("drop", b.path("f"))
	require.Equal(t, []string{"r"}, b.keepers("f"))
	require.Equal(t, sum, digest(t, b.path("f")))
	b.waitReleased() // what is open can be read on though it was dropped
	b.must("drop", b.path("f"))
	r.must("drop", "--force", r.path("f"))
	requireEIO(t, run(t, "cat", b.path("f")), nil)
}

// K2: a node that joined needs nobody else, and two that give up at once do not
// both rely on the other.
func TestKeepersGiveUpAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	for i := range 3 {
		name := "f" + itoa(i)
		sum := registered(t, a, name, 2*smallChunk, uint64(i))
		b.register(c.copyOf(name, "b/"+name), name)
		ra := launch(t, a.command("unregister", "--keep-name", a.path(name), "--node", a.cache))
		rb := launch(t, b.command("unregister", "--keep-name", b.path(name), "--node", b.cache))
		codes := []int{ra.finish(t, commandLimit).code, rb.finish(t, commandLimit).code}
		require.NotEqual(t, []int{0, 0}, codes, "both gave it up")
		require.NotEmpty(t, a.keepers(name))
		require.Equal(t, sum, digest(t, a.path(name)))
		require.Equal(t, sum, digest(t, b.path(name)))
	}
}
