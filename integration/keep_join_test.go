package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// copies holds the fields of stat that tell who holds a file.
type copies struct {
	ID        string     `json:"id"`
	State     string     `json:"state"`
	Source    string     `json:"source"`
	Providers []provided `json:"providers"`
}

// provided is what one node holds of it.
type provided struct {
	Name     string `json:"name"`
	Complete bool   `json:"complete"`
	Keeper   bool   `json:"keeper"`
	Alive    bool   `json:"alive"`
}

func (n *node) copies(path string) copies {
	n.t.Helper()
	var c copies
	n.json(&c, "stat", n.path(path))
	return c
}

// keepers returns the names of the nodes that keep a file.
func (n *node) keepers(path string) []string {
	n.t.Helper()
	var out []string
	for _, p := range n.copies(path).Providers {
		if p.Keeper {
			out = append(out, p.Name)
		}
	}
	return out
}

// copyOf makes a second file with the bytes of a source.
func (c *cluster) copyOf(name, as string) string {
	c.t.Helper()
	to := c.src(as)
	require.NoError(c.t, os.MkdirAll(filepath.Dir(to), 0o755))
	must(c.t, "cp", "-a", c.src(name), to)
	return to
}

type collected struct {
	Checked   int64 `json:"checked"`
	Removed   int64 `json:"removed"`
	Forgotten int64 `json:"forgotten"`
	Waiting   int64 `json:"waiting"`
}

func (n *node) gc(flags ...string) collected {
	n.t.Helper()
	var c collected
	n.json(&c, append([]string{"gc"}, flags...)...)
	return c
}

// collects runs gc until it has removed and forgotten so many objects, and requires
// that there are no more: what somebody had open goes a moment after it was closed.
// The background does not come before it, which leaves everything for a minute.
func (n *node) collects(want int64) {
	n.t.Helper()
	sum := int64(0)
	eventually(n.t, 50*time.Second, itoa(want)+" objects are collected on "+n.name, func() bool {
		r := n.gc()
		sum += r.Removed + r.Forgotten
		return sum >= want
	})
	require.Equal(n.t, want, sum, "collected on %s", n.name)
}

// K4
func TestRegisteringEqualBytesJoins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		size int64
		read bool // by another node first, so that some sums are bound
	}{
		{"one block that nobody has read", 1000, false},
		{"many blocks that nobody has read", 10*smallChunk + 7, false},
		{"many blocks that were read", 10*smallChunk + 7, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a, b, r := c.start("a"), c.start("b"), c.start("r")
			sum := registered(t, a, "f", tt.size, 1)
			if tt.read {
				require.Equal(t, sum, digest(t, r.path("f")))
				r.must("drop", r.path("f"))
			}
			id := a.stat("f").ID
			second := c.copyOf("f", "again/f")
			b.register(second, "f")
			require.Equal(t, id, b.stat("f").ID, "joining made another object")
			require.ElementsMatch(t, []string{"a", "b"}, r.keepers("f"))
			require.Equal(t, "in-place", b.copies("f").State)
			b.register(second, "f") // and once more

			a.kill()
			require.Equal(t, sum, digest(t, r.path("f")), "b does not serve what it joined")
			b.stop()
			b.start() // it is remembered
			require.Equal(t, "in-place", b.copies("f").State)
		})
	}
}

// K4
func TestRegisteringOtherBytesIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	require.NoError(t, os.MkdirAll(c.src("t/sub"), 0o755))
	sums := map[string]string{}
	for i, name := range []string{"a", "b", "sub/c", "sub/d"} {
		sums[name] = writeFile(t, c.src("t/"+name), 3*smallChunk, uint64(i))
	}
	require.NoError(t, os.Symlink("a", c.src("t/link")))
	a.register(c.src("t"), "t")
	ids := map[string]string{}
	for name := range sums {
		ids[name] = a.stat("t/" + name).ID
	}
	must(t, "cp", "-a", c.src("t"), c.src("other"))
	other := writeFile(t, c.src("other/sub/c"), 3*smallChunk, 99) // as long, other bytes
	added := writeFile(t, c.src("other/sub/e"), 1000, 100)
	writeFile(t, c.src("other/sub/d"), 10, 101) // another length, seen first
	refused := func(names ...string) {
		t.Helper()
		r := b.p2pfs(append([]string{"register", "-T"}, c.src("other"), b.path("t"))...)
		require.NotZero(t, r.code)
		for _, n := range append(names, "--replace") {
			require.Contains(t, r.err, n)
		}
		require.Equal(t, "a\nb\nlink\nsub\n", must(t, "ls", b.path("t")))
		require.Equal(t, "c\nd\n", must(t, "ls", b.path("t/sub")))
		require.Equal(t, []string{"a"}, b.keepers("t/a"), "a part was joined")
	}
	refused("t/sub/d", "bytes")
	must(t, "cp", "-a", c.src("t/sub/d"), c.src("other/sub/d"))
	refused("t/sub/c", "other bytes")

	b.must("register", "--replace", "-T", c.src("other"), b.path("t"))
	require.Equal(t, other, digest(t, a.path("t/sub/c")))
	require.Equal(t, added, digest(t, a.path("t/sub/e")))
	require.NotEqual(t, ids["sub/c"], a.stat("t/sub/c").ID)
	for _, name := range []string{"a", "b", "sub/d"} {
		require.Equal(t, ids[name], a.stat("t/"+name).ID, "%s is equal, and was replaced", name)
		require.ElementsMatch(t, []string{"a", "b"}, a.keepers("t/"+name))
	}
	require.Equal(t, []string{"b"}, a.keepers("t/sub/c"))

	// Kinds do not mix, whatever is asked.
	require.NoError(t, os.Remove(c.src("other/a")))
	require.NoError(t, os.Mkdir(c.src("other/a"), 0o755))
	require.NotZero(t, b.p2pfs("register", "--replace", "-T", c.src("other"), b.path("t")).code)
}

// K4: a tree is joined under its own name, and files that are missing are added.
func TestATreeIsJoined(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	writeFile(t, c.src("t/x"), 2*smallChunk, 1)
	writeFile(t, c.src("t/d/y"), 100, 2)
	require.NoError(t, os.WriteFile(c.src("t/empty"), nil, 0o644))
	a.register(c.src("t"), "t")
	must(t, "cp", "-a", c.src("t"), c.src("two/")) // "two" is made: its name is another
	must(t, "mkdir", c.src("b"))
	must(t, "cp", "-a", c.src("t"), c.src("b/t"))
	sum := writeFile(t, c.src("b/t/new/z"), smallChunk, 3)
	require.Contains(t, b.must("register", c.src("b/t"), b.path("t")), "at "+b.path("t")+" in")
	require.Equal(t, "d\nempty\nnew\nx\n", must(t, "ls", a.path("t")))
	require.Equal(t, sum, digest(t, a.path("t/new/z")))
	for _, name := range []string{"t/x", "t/d/y"} {
		require.ElementsMatch(t, []string{"a", "b"}, a.keepers(name))
	}
	said := b.must("register", c.src("two"), b.path("t")) // as cp -r
	require.Contains(t, said, "at "+b.path("t/two")+" in")
	require.Equal(t, "d\nempty\nx\n", must(t, "ls", a.path("t/two")))
}

// K4: of two nodes that register one path at once, one makes the object and the
// other joins it; with other bytes one of them is refused.
func TestTwoNodesRegisterOnePathAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	nodes := []*node{c.start("a"), c.start("b"), c.start("c")}
	for i := range 3 {
		for _, n := range nodes {
			writeFile(t, c.src(n.name+"/equal/x"), 2*smallChunk, uint64(i))
			writeFile(t, c.src(n.name+"/equal/d/y"), 100, uint64(i))
			writeFile(t, c.src(n.name+"/unequal/x"), smallChunk, uint64(n.name[0]))
		}
		at := func(kind string) string { return "m/" + kind + itoa(i) }
		for _, kind := range []string{"equal", "unequal"} {
			var all []*running
			for _, n := range nodes {
				all = append(all, launch(t, n.command("register", "-T", c.src(n.name+"/"+kind), n.path(at(kind)), "--node", n.cache)))
			}
			failed := 0
			for _, r := range all {
				res := r.finish(t, commandLimit)
				if res.code != 0 {
					failed++
					require.Contains(t, res.err, "differs")
				}
			}
			if kind == "equal" {
				require.Zero(t, failed)
				require.ElementsMatch(t, []string{"a", "b", "c"}, nodes[0].keepers(at(kind)+"/x"))
				require.ElementsMatch(t, []string{"a", "b", "c"}, nodes[0].keepers(at(kind)+"/d/y"))
			} else {
				require.Equal(t, 2, failed)
				require.Len(t, nodes[0].keepers(at(kind)+"/x"), 1)
			}
		}
	}
}
