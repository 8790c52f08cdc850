package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// wipes are the ways a store can lose its records and go on.
var wipes = []struct {
	name string
	wipe func(t *testing.T, s *store)
}{
	{"all keys deleted", func(t *testing.T, s *store) { s.deleteAll(t) }},
	{"a new empty etcd", func(t *testing.T, s *store) { require.NoError(t, s.wipe()) }},
}

// deleteAll removes every key, as a person does with the wrong prefix.
func (s *store) deleteAll(t *testing.T) {
	t.Helper()
	cmd := exec.Command("etcdctl", "--endpoints", strings.TrimPrefix(s.url(), "etcd://"), "--dial-timeout=60s", "--command-timeout=60s", "del", "--prefix", "")
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	r := runCmd(t, commandLimit, cmd)
	require.Zero(t, r.code, r.String())
}

// namesBelow lists a tree as ls -R does, without the path of its top.
func namesBelow(t testing.TB, dir string) string {
	t.Helper()
	r := run(t, "sh", "-c", `cd "$1" && ls -R`, "sh", dir)
	require.Zero(t, r.code, "ls -R %s: %s", dir, r)
	return string(r.out)
}

// tryNames is namesBelow that says what went wrong.
func tryNames(t testing.TB, dir string) string {
	t.Helper()
	return run(t, "sh", "-c", `cd "$1" && ls -R`, "sh", dir).String()
}

// put writes a file through the mount.
func put(t testing.TB, n *node, name string, size int64, seed uint64) string {
	t.Helper()
	src := n.c.src("put/" + n.name + "-" + strings.ReplaceAll(name, "/", "-"))
	require.NoError(t, os.MkdirAll(filepath.Dir(src), 0o755))
	sum := writeFile(t, src, size, seed)
	must(t, "cp", src, n.path(name))
	return sum
}

// backBound is how long it may take until names are back: they wait for each other
// for a minute (settleMax), and a machine may stand still.
const backBound = 4 * time.Minute

// sameNames waits until every node shows the same names, and those of want.
func sameNames(t *testing.T, want string, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		got := ""
		ctx, cancel := context.WithTimeout(t.Context(), backBound)
		for ctx.Err() == nil {
			if got = tryNames(t, n.mnt); got == strings.TrimSpace(want) && n.status().Meta.State == "up" {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		cancel()
		require.Equal(t, strings.TrimSpace(want), got, "names on %s", n.name)
	}
}

// restoredSince waits until nodes have brought back what they know since a
// moment: with the names that they know, they may not notice at once that the
// store is empty.
func restoredSince(t *testing.T, since time.Time, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, backBound, "the names are back, on "+n.name, func() bool {
			m := n.status().Meta
			return m.State == "up" && m.Restored.At.After(since)
		})
	}
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

// The store loses everything while nodes run: names, bytes and who holds them
// come back, and nothing that was removed.
func TestAWipedStoreIsFilledAgain(t *testing.T) { // N6, O4
	t.Parallel()
	for _, tt := range wipes {
		for _, consistency := range []string{"open", "watch"} {
			t.Run(tt.name+" "+consistency, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, "--consistency="+consistency)
				s := ownStore(t, c)
				a, b, d := c.start("a"), c.start("b"), c.start("d")
				// Under watch what another node did is seen a moment later: who goes
				// on with it waits for the news.
				known := func() {
					t.Helper()
					eventually(t, commandLimit, "one state on all nodes", func() bool {
						first := tryNames(t, a.mnt)
						return tryNames(t, b.mnt) == first && tryNames(t, d.mnt) == first
					})
				}
				news := func() {
					t.Helper()
					if consistency == "watch" {
						known()
					}
				}
				sums := map[string]string{}
				sums["models/v1/one"] = registered(t, a, "models/v1/one", 5*smallChunk, 1)
				sums["models/v1/small"] = registered(t, b, "models/v1/small", 100, 2)
				news()
				registered(t, a, "models/v1/gone", smallBlock, 3)
				a.must("unregister", a.path("models/v1/gone"))
				must(t, "mkdir", "-p", b.path("runs/7"))
				news()
				must(t, "mkdir", "-p", a.path("runs/8"))
				news()
				sums["runs/7/ckpt"] = put(t, d, "runs/7/ckpt", 3*smallChunk+17, 4)
				put(t, d, "runs/7/old", smallBlock, 5)
				news()
				must(t, "rm", b.path("runs/7/old")) // by another node than wrote it
				put(t, b, "runs/8/x", 50, 6)
				news()
				must(t, "rm", "-r", d.path("runs/8"))
				sums["runs/final"] = put(t, a, "runs/tmp", 3*smallBlock, 7)
				news()
				must(t, "mv", b.path("runs/tmp"), b.path("runs/final"))
				must(t, "ln", "-s", "final", d.path("runs/link"))
				news()
				must(t, "mv", d.path("runs/7"), d.path("models/seven"))
				news()
				sums["models/seven/ckpt"] = sums["runs/7/ckpt"]
				delete(sums, "runs/7/ckpt")
				require.Equal(t, sums["models/v1/one"], digest(t, b.path("models/v1/one")))
				b.waitLocal("models/v1/one")
				want := namesBelow(t, a.mnt)
				require.NotContains(t, want, "gone")
				require.NotContains(t, want, "old")
				require.NotContains(t, want, "8")
				sameNames(t, want, a, b, d)

				for range 2 {
					wiped := time.Now()
					tt.wipe(t, s)
					// What is known is never missing while it is brought back.
					for _, n := range []*node{a, b, d} {
						require.Equal(t, "models\nruns\n", must(t, "ls", n.mnt), n.name)
					}
					restoredSince(t, wiped, a, b, d)
					sameNames(t, want, a, b, d)
					for _, n := range []*node{a, b, d} {
						for name, sum := range sums {
							require.Equal(t, sum, digest(t, n.path(name)), "%s on %s", name, n.name)
						}
					}
					eventually(t, commandLimit, "who holds them", func() bool {
						return len(a.stat("models/v1/one").Providers) >= 2
					})
					must(t, "mkdir", b.path("new"))
					sums["new/f"] = put(t, b, "new/f", smallBlock+1, 8)
					news()
					require.Equal(t, sums["new/f"], digest(t, d.path("new/f")))
					must(t, "rm", "-r", d.path("new"))
					delete(sums, "new/f")
					known() // with the store away a node shows what it heard of last
				}
				// And what was brought back can be removed for good.
				must(t, "rm", d.path("models/v1/one"))
				wiped := time.Now()
				tt.wipe(t, s)
				restoredSince(t, wiped, a, b, d)
				want = strings.Replace(want, "one\n", "", 1)
				sameNames(t, want, a, b, d)
				e := c.start("e")
				sameNames(t, want, e)
			})
		}
	}
}

// A node that was away when the store was lost brings back what nobody removed
// meanwhile.
func TestANodeThatWasAwayBringsBackWhatIsLeft(t *testing.T) { // N6
	t.Parallel()
	for _, tt := range wipes {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			s := ownStore(t, c)
			a, b, d := c.start("a"), c.start("b"), c.start("d")
			must(t, "mkdir", "-p", a.path("dir/sub"))
			kept := put(t, b, "dir/sub/kept", 3*smallBlock, 1)
			put(t, b, "dir/removed", smallBlock, 2)
			put(t, b, "dir/replaced", smallBlock, 3)
			both := put(t, a, "dir/of-a", smallBlock, 4)
			alone := put(t, b, "alone", 70, 5)
			must(t, "mkdir", b.path("only-b"))
			under := put(t, b, "only-b/under", 2*smallBlock, 6)
			b.stop()
			must(t, "rm", a.path("dir/removed")) // before the store is lost
			wiped := time.Now()
			tt.wipe(t, s)
			restoredSince(t, wiped, a, d)
			for _, n := range []*node{a, d} {
				eventually(t, backBound, "a's names", func() bool {
					return n.status().Meta.State == "up" && strings.Contains(tryNames(t, n.path("dir")), "of-a")
				})
			}
			require.NotContains(t, tryNames(t, a.mnt), "removed")
			replaced := put(t, d, "dir/replaced", 5*smallBlock, 7) // in the new epoch
			must(t, "mkdir", d.path("only-b"))                     // nobody found it there
			beside := put(t, d, "only-b/beside", smallBlock, 8)

			returns := time.Now()
			b.start()
			restoredSince(t, returns, b)
			require.Contains(t, namesBelow(t, a.mnt), "alone")
			for _, n := range []*node{a, b, d} {
				for name, sum := range map[string]string{
					"dir/sub/kept": kept, "dir/of-a": both, "alone": alone, "dir/replaced": replaced, "only-b/under": under, "only-b/beside": beside,
				} {
					require.Equal(t, sum, hexOf([]byte(readBack(t, n.path(name)))), "%s on %s", name, n.name)
				}
				require.NotContains(t, namesBelow(t, n.mnt), "removed", n.name)
			}
			// Removed after it came back: it may come again, as often as it likes.
			must(t, "rm", a.path("alone"))
			b.kill()
			b.start()
			require.NotContains(t, namesBelow(t, b.mnt), "alone")
			wiped = time.Now()
			tt.wipe(t, s)
			restoredSince(t, wiped, a, b, d)
			require.Contains(t, namesBelow(t, a.mnt), "kept")
			require.NotContains(t, namesBelow(t, b.mnt), "alone")
		})
	}
}

// A store that is restored from a copy knows less than it said: what was
// written since comes back, what was removed since goes again.
func TestARolledBackStore(t *testing.T) { // N6
	t.Parallel()
	c := newCluster(t)
	s := ownStore(t, c)
	a, b := c.start("a"), c.start("b")
	must(t, "mkdir", a.path("d"))
	before := put(t, a, "d/before", 3*smallBlock, 1)
	put(t, b, "d/removed", smallBlock, 2)
	must(t, "ls", b.path("d"))
	s.stop()
	must(t, "cp", "-a", s.dir, s.dir+".copy")
	require.NoError(t, s.start())
	inTouch(t, a, b)
	since := put(t, a, "d/since", 5*smallBlock, 3)
	must(t, "mkdir", b.path("e"))
	under := put(t, b, "e/under", 100, 4)
	must(t, "rm", a.path("d/removed"))
	want := namesBelow(t, a.mnt)
	sameNames(t, want, a, b)

	s.stop()
	require.NoError(t, os.RemoveAll(s.dir))
	require.NoError(t, os.Rename(s.dir+".copy", s.dir))
	require.NoError(t, s.start())
	eventually(t, backBound, "a new epoch", func() bool {
		return a.status().Meta.Restored.Why != "" && b.status().Meta.Restored.Why != ""
	})
	sameNames(t, want, a, b)
	for _, n := range []*node{a, b} {
		require.Equal(t, before, hexOf([]byte(readBack(t, n.path("d/before")))))
		require.Equal(t, since, hexOf([]byte(readBack(t, n.path("d/since")))))
		require.Equal(t, under, hexOf([]byte(readBack(t, n.path("e/under")))))
	}
}

// A node that starts cannot tell a store that was emptied from another one: the
// user says which it is.
func TestANodeDoesNotStartOnAWipedStoreUnasked(t *testing.T) { // N6
	t.Parallel()
	c := newCluster(t)
	s := ownStore(t, c)
	a, b := c.start("a"), c.start("b")
	held := registered(t, a, "d/held", 5*smallChunk, 1)
	mine := put(t, b, "d/mine", 2*smallBlock, 2)
	put(t, b, "d/removed", 2*smallBlock, 3)
	must(t, "rm", a.path("d/removed"))
	want := namesBelow(t, a.mnt)
	a.stop()
	b.stop()
	require.NoError(t, s.wipe())
	for range 2 {
		said := refused(t, b)
		require.Contains(t, said, "is empty")
		require.Contains(t, said, "was the store emptied")
		require.Contains(t, said, "--restore-store")
		require.Empty(t, mountType(b.mnt))
	}
	a.args = append(a.args, "--restore-store")
	a.start()
	eventually(t, backBound, "a's names", func() bool {
		return a.status().Meta.State == "up" && strings.Contains(tryNames(t, a.mnt), "held")
	})
	require.Equal(t, held, digest(t, a.path("d/held")))
	b.start()
	sameNames(t, want, a, b)
	require.Equal(t, held, hexOf([]byte(readBack(t, b.path("d/held")))))
	require.Equal(t, mine, hexOf([]byte(readBack(t, a.path("d/mine")))))
}

// Another cluster's store is a store out of reach: nothing of one cluster comes
// into the other.
func TestAStoreOfAnotherClusterIsOutOfReach(t *testing.T) {
	t.Parallel()
	for _, consistency := range []string{"open", "watch"} {
		t.Run(consistency, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--consistency="+consistency)
			s := ownStore(t, c)
			a, b := c.start("a"), c.start("b")
			held := registered(t, a, "d/held", 5*smallChunk, 1)
			registered(t, a, "d/known", 5*smallChunk, 2)
			must(t, "ls", "-lR", a.mnt)
			b.stop()
			a.proc.signal(syscall.SIGSTOP)
			require.NoError(t, s.wipe())
			d := c.start("d") // it has not been in any cluster, and makes one
			a.proc.signal(syscall.SIGCONT)
			require.Contains(t, refused(t, b), "cluster")
			eventually(t, backBound, "the other cluster in the status of a", func() bool {
				return strings.Contains(a.status().Meta.Error, "it is of cluster")
			})
			require.Equal(t, "held\nknown\n", must(t, "ls", a.path("d")))
			require.Equal(t, held, digest(t, a.path("d/held")))
			for _, name := range []string{"nothing", "d/nothing"} {
				r := run(t, "stat", a.path(name))
				require.NotZero(t, r.code)
				require.NotContains(t, r.err, "No such file", "another store says nothing of names")
			}
			r := a.p2pfs("register", c.src("d/held"), a.path("again"))
			require.NotZero(t, r.code, "registered in a cluster that is not its own: %s", r)
			require.Empty(t, must(t, "ls", d.mnt), "names of one cluster came into the other")
		})
	}
}
