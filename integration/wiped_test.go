package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lost are the ways a store can go for good right after a registration.
var lost = []struct {
	name string
	lose func(t *testing.T, s *store)
}{
	{"killed", func(_ *testing.T, s *store) { s.proc.kill() }},
	{"wiped", func(t *testing.T, s *store) { require.NoError(t, s.wipe()) }},
}

// namesBelow lists a tree as ls -R does, without the path of its top.
func namesBelow(t testing.TB, dir string) string {
	t.Helper()
	r := runCmd(t, 60*time.Second, exec.Command("sh", "-c", `cd "$1" && ls -R`, "sh", dir))
	require.Zero(t, r.code, "ls -R %s: %s", dir, r)
	return string(r.out)
}

// What was registered is held where it lies: its names are needed to reach it,
// though nobody has listed them before the store went.
func TestWhatWasRegisteredOutlivesTheStoreUnlisted(t *testing.T) {
	t.Parallel()
	for _, tt := range lost {
		for _, consistency := range []string{"open", "watch"} {
			t.Run(tt.name+" "+consistency, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, "--consistency="+consistency)
				s := ownStore(t, c)
				a := c.start("a")
				sums := map[string]string{}
				for i, name := range []string{"config", "shards/1", "shards/2", "shards/deep/er/3"} {
					sums[name] = writeFile(t, c.src("tree/"+name), int64(i+1)*smallBlock+int64(i), uint64(i))
				}
				require.NoError(t, os.Mkdir(c.src("tree/empty"), 0o755))
				require.NoError(t, os.Symlink("shards/1", c.src("tree/link")))
				single := writeFile(t, c.src("single"), smallBlock, 9)

				a.register(c.src("tree"), "models/llm/v1")
				a.register(c.src("single"), "models/llm/single")
				tt.lose(t, s)

				check := func() {
					t.Helper()
					require.Equal(t, namesBelow(t, c.src("tree")), namesBelow(t, a.path("models/llm/v1")))
					require.Equal(t, "models\n", must(t, "ls", a.mnt))
					require.Equal(t, "single\nv1\n", must(t, "ls", a.path("models/llm")))
					for name, sum := range sums {
						require.Equal(t, sum, digest(t, a.path("models/llm/v1", name)), name)
					}
					require.Equal(t, sums["shards/1"], digest(t, a.path("models/llm/v1/link")))
					require.Equal(t, single, digest(t, a.path("models/llm/single")))
				}
				check()
				if tt.name == "killed" { // a node does not start on a wiped one
					a.stop()
					a.start()
					check()
				}
			})
		}
	}
}

func TestAWipedStoreIsAStoreOutOfReach(t *testing.T) {
	t.Parallel()
	for _, consistency := range []string{"open", "watch"} {
		t.Run(consistency, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--consistency="+consistency)
			s := ownStore(t, c)
			a, b := c.start("a"), c.start("b")
			held := registered(t, a, "d/held", 5*smallChunk, 1)
			registered(t, a, "d/known", 5*smallChunk, 2)
			registered(t, a, "e/unseen", smallBlock, 3)
			require.Equal(t, held, digest(t, b.path("d/held")))
			b.waitLocal("d/held")
			must(t, "ls", "-lR", b.path("d"))

			require.NoError(t, s.wipe())
			look := func() {
				t.Helper()
				for _, n := range []*node{a, b} {
					require.Equal(t, "held\nknown\n", must(t, "ls", n.path("d")), n.name)
					require.Equal(t, held, digest(t, n.path("d/held")), n.name)
					must(t, "stat", n.path("d/known"))
				}
				r := run(t, "cat", b.path("e/unseen"))
				require.NotZero(t, r.code)
				require.Contains(t, r.err, "Input/output error")
			}
			nothing := func() {
				t.Helper()
				for _, n := range []*node{a, b} {
					for _, name := range []string{"nothing", "d/nothing", "e/nothing"} {
						r := run(t, "stat", n.path(name))
						require.NotZero(t, r.code)
						require.NotContains(t, r.err, "No such file", "%s: a wiped store says nothing of names", n.name)
					}
				}
			}
			if consistency == "open" { // watch may go by what it knows for a while
				nothing()
			}
			look()
			for _, n := range []*node{a, b} {
				eventually(t, 60*time.Second, "the reason in the status of "+n.name, func() bool {
					m := n.status().Meta
					return m.State == "down" && strings.Contains(m.Error, "it is empty, and was of cluster")
				})
			}
			look()
			nothing()

			// A node that has been in a cluster makes no other one.
			b.stop()
			for range 2 {
				said := refused(t, b)
				require.Contains(t, said, "is empty")
				require.Contains(t, said, "was the store emptied")
				require.Empty(t, mountType(b.mnt))
			}
			// One that has not been in any makes one, and those of the old one
			// stay out of it.
			d := c.start("d")
			require.Empty(t, must(t, "ls", d.mnt))
			require.Contains(t, refused(t, b), "cluster")
			eventually(t, 60*time.Second, "the other cluster in the status of a", func() bool {
				return strings.Contains(a.status().Meta.Error, "it is of cluster")
			})
			require.Equal(t, "held\nknown\n", must(t, "ls", a.path("d")))
			require.Equal(t, held, digest(t, a.path("d/held")))
			require.Empty(t, must(t, "ls", d.mnt), "names of the old cluster came into the new one")
			r := a.p2pfs("register", c.src("d/held"), a.path("again"))
			require.NotZero(t, r.code, "registered in a cluster that is not its own: %s", r)
			require.Empty(t, must(t, "ls", d.mnt))
		})
	}
}
