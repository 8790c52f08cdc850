package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plainEnv names a directory of an ordinary disk on which the tests that write
// run instead of on a cluster: the control, which shows what they ask for.
const plainEnv = "P2PFS_TEST_PLAIN"

// pair is two places that show the same files: on two nodes of a cluster, or,
// for the control, one directory twice. Tests write at a and look at b.
type pair struct {
	a, b string // folders of the test's own
	c    *cluster
	na   *node // nil for the control, as nb
	nb   *node
	src  string // a directory of a disk
}

func newPair(t *testing.T, flags ...string) pair {
	t.Helper()
	c := newCluster(t, flags...)
	p := pair{c: c, src: filepath.Join(c.dir, "src")}
	require.NoError(t, os.MkdirAll(p.src, 0o755))
	if plain := os.Getenv(plainEnv); plain != "" {
		dir, err := os.MkdirTemp(plain, "p2it")
		require.NoError(t, err)
		require.NoError(t, os.Chmod(dir, 0o755))
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		p.a, p.b = dir, dir
		return p
	}
	require.NoError(t, os.Chmod(world.root, 0o711)) // some cases take on other users' ids
	p.na, p.nb = c.start("a"), c.start("b")
	p.a, p.b = p.na.mnt, p.nb.mnt
	return p
}

// plain tells that this is the control.
func (p pair) plain() bool { return p.na == nil }

// mkdir makes a folder at a and returns it as seen at both.
func (p pair) mkdir(t testing.TB, name string) (a, b string) {
	t.Helper()
	must(t, "mkdir", filepath.Join(p.a, name))
	return filepath.Join(p.a, name), filepath.Join(p.b, name)
}

// python runs one of the scripts in testdata.
func python(t testing.TB, script string, args ...string) string {
	t.Helper()
	return must(t, world.python, pythonArgs(script, args)...)
}

func pythonArgs(script string, args []string) []string {
	return append([]string{filepath.Join("testdata", script)}, args...)
}

// listing is a line for each name below a folder: kind, mode, owner, size,
// mtime in nanoseconds, content. how: "list", or "content" without the times
// of folders.
func listing(t testing.TB, how, dir string) string { t.Helper(); return python(t, "tree.py", how, dir) }

// sameListing requires that a folder shows what is wanted. The listing of a
// folder that is known already follows the store by watching it, so that it
// may come a little later than the change.
func sameListing(t testing.TB, how, want, dir string) {
	t.Helper()
	soonEqual(t, how+" of "+dir, func() string { return want }, func() string { return tryListing(t, how, dir) })
}

// sameOnBoth requires that two nodes show the same: either may know what the other
// one did, and what was made of it, a little later.
func sameOnBoth(t testing.TB, how, a, b string) {
	t.Helper()
	soonEqual(t, how+" of "+a+" and "+b, func() string { return tryListing(t, how, a) }, func() string { return tryListing(t, how, b) })
}

// tryListing is listing that says what went wrong, as nothing else says it: what is
// stat'ed of the past may be another kind of file now.
func tryListing(t testing.TB, how, dir string) string {
	t.Helper()
	r := runCmd(t, commandLimit, exec.Command(world.python, pythonArgs("tree.py", []string{how, dir})...))
	if r.code != 0 {
		return fmt.Sprintf("listing %s failed after %v: %s", dir, r.took, r)
	}
	return string(r.out)
}

// soonEqual waits until two things are the same.
func soonEqual(t testing.TB, what string, want, got func() string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(commandLimit)
	w, g := want(), got()
	for w != g {
		select {
		case <-tick.C:
			w, g = want(), got()
			continue
		case <-limit:
		}
		break
	}
	require.Equal(t, w, g, what)
}

// watchAt reads one path at b again and again, until the returned function is
// called, which gives every different thing that was seen there.
func (p pair) watchAt(t *testing.T, path string) (seen func() []string) {
	t.Helper()
	ready := filepath.Join(p.src, strings.ReplaceAll(t.Name(), "/", "_")+".watched")
	cmd := exec.Command(world.python, pythonArgs("tree.py", []string{"watch", path, ready})...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	r := launch(t, cmd)
	eventually(t, commandLimit, "watching "+path, func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	return func() []string {
		t.Helper()
		require.NoError(t, stdin.Close())
		res := r.finish(t, commandLimit)
		require.Zero(t, res.code, "watching %s: %s", path, res)
		return strings.Fields(string(res.out))
	}
}

// report says something that is not judged; tools/gotest.py shows such lines
// of tests that pass, too.
func report(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Logf("report: "+format, args...)
}
