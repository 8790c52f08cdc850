package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// passthroughModes are the two ways complete files are read.
var passthroughModes = []string{"auto", "off"}

func TestRegisteredBytesReadEqualEverywhere(t *testing.T) {
	t.Parallel()
	for _, mode := range passthroughModes {
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--passthrough="+mode)
			a, b := c.start("a"), c.start("b")
			sums := map[string]string{}
			for i, size := range []int64{
				0, 1, 4095, 4096, 4097,
				smallBlock - 1, smallBlock, smallBlock + 1,
				smallChunk - 1, smallChunk, smallChunk + 1,
				7*smallChunk + smallBlock + 13,
			} {
				name := fmt.Sprintf("f%d", size)
				sums[name] = writeFile(t, c.src("d/"+name), size, uint64(i))
			}
			a.register(c.src("d"), "d")
			for name, sum := range sums {
				require.Equal(t, sum, digest(t, a.path("d", name)), "%s on a", name)
				require.Equal(t, sum, digest(t, b.path("d", name)), "%s on b, cold", name)
				require.Equal(t, sum, digest(t, b.path("d", name)), "%s on b, again", name)
			}
			for name := range sums {
				b.waitLocal("d/" + name)
				require.Equal(t, sums[name], digest(t, b.path("d", name)), "%s on b, complete", name)
			}
			require.Zero(t, a.received())
			require.Positive(t, b.received())
		})
	}
}

func TestReadsAcrossEveryEdge(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	const size = 4*smallChunk + smallBlock/2
	registered(t, a, "f", size, 1)
	for _, at := range []struct{ off, n int64 }{
		{smallBlock - 1, 2},
		{smallChunk - 1, 2},
		{smallChunk - smallBlock, smallBlock},
		{smallBlock / 2, 2 * smallChunk},
		{size - 1, 1},
		{size - 1, 100},
		{size, 10},
		{size + smallBlock, 10},
		{0, size},
	} {
		sameAt(t, c.src("f"), b.path("f"), at.off, at.n)
	}
}

// registersUnread registers a large file and requires that this reads next to
// nothing: that it is quick, however slow the machine is.
func registersUnread(t *testing.T, n *node, src, dest string) {
	t.Helper()
	read := func() int64 {
		for line := range strings.Lines(string(content(t, "/proc/"+itoa(n.proc.pid())+"/io"))) {
			if said, ok := strings.CutPrefix(line, "rchar: "); ok {
				v, err := strconv.ParseInt(strings.TrimSpace(said), 10, 64)
				require.NoError(t, err)
				return v
			}
		}
		require.Fail(t, "no rchar")
		return 0
	}
	before := read()
	n.register(src, dest)
	require.Less(t, read()-before, int64(64<<20), "registering reads the file")
}

func TestAFileOf5GiBReadsRightBeyond32Bits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, bigBlocks)
	a, b := c.start("a"), c.start("b")
	const size = 5<<30 + 1
	src := c.src("big")
	marks := []int64{0, 1<<31 - 2, 1<<31 + 5, 1<<32 - 3, 1<<32 + 7, size - 4}
	f, err := os.Create(src)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	for _, off := range marks {
		_, err := f.WriteAt([]byte("mark"), off)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	registersUnread(t, a, src, "big")

	require.Equal(t, itoa(int64(size)), strings.TrimSpace(must(t, "stat", "-c", "%s", b.path("big"))))
	for _, off := range marks {
		sameAt(t, src, b.path("big"), max(0, off-10), 30)
	}
	b.receivedAtMost(float64(16*len(marks)<<20), bigBlock, "six small reads fetched far more than their blocks")
}

func TestASparseFileOf2TiBIsInstantAndItsZerosStayHome(t *testing.T) {
	t.Parallel()
	c := newCluster(t, bigBlocks)
	a, b := c.start("a"), c.start("b")
	const size = 2 << 40
	src := c.src("huge")
	f, err := os.Create(src)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	_, err = f.WriteAt([]byte("mark"), size-4)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	registersUnread(t, a, src, "huge")
	sameAt(t, src, b.path("huge"), size/2, 1<<20)
	sameAt(t, src, b.path("huge"), size-100, 100)
	b.receivedAtMost(8<<20, bigBlock, "zeros travelled")
}

// oddNames are names that other systems lose or trip over.
var oddNames = []string{
	"index", "files", "meta", "a:b", "a*b", "[x]", "%", "%2F", "#", "?", "&", "+", " ", "a ", " a", "\t", "\n", "a\nb",
	"\\", "'", "\"", "$HOME", "`x`", "-rf", "--help", "a_b", ".hidden", "...", "..a", "\x01", "\x7f", "\xff\xfe", "caf\xe9",
	"café", "cafe\u0301", "模型", "🦙", strings.Repeat("n", 255), strings.Repeat("é", 127),
}

func TestATreeKeepsNamesLinksAndModes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	src := c.src("tree")
	sums := map[string]string{}
	for i, name := range oddNames {
		sums[name] = writeFile(t, filepath.Join(src, name), int64(10+i), uint64(i))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(src, "a", "b", "empty"), 0o750))
	writeFile(t, filepath.Join(src, "a", "b", "deep"), smallBlock+1, 99)
	require.NoError(t, os.Chmod(filepath.Join(src, "a", "b", "deep"), 0o640))
	stamp := time.Unix(1_000_000_000, 123_456_789)
	require.NoError(t, os.Chtimes(filepath.Join(src, "a", "b", "deep"), stamp, stamp))
	for name, target := range map[string]string{
		"relative": "a/b/deep", "dangling": "no/such/../file", "absolute": "/etc/hostname", "odd": "\xff\n x", "up": "../tree/index", "dir": "a",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(src, name)))
	}
	a.register(src, "tree")

	for _, n := range []*node{a, b} {
		must(t, "diff", "-r", "--no-dereference", src, n.path("tree"))
		list := func(dir string) string {
			return must(t, "sh", "-c", `cd "$1" && find . -printf '%P|%y|%m|%s|%l|%T@\0' | sort -z | grep -zv '|d|'`, "sh", dir)
		}
		require.Equal(t, list(src), list(n.path("tree")), "attributes on %s", n.name)
		for name, sum := range sums {
			require.Equal(t, sum, digest(t, n.path("tree", name)), "%q on %s", name, n.name)
		}
	}
	require.NotZero(t, run(t, "stat", b.path("tree", strings.Repeat("n", 256))).code)
	b.must("ls", "-l", "-r", b.path("tree"))
}

func TestRegisteringNeedsOneKindOfAName(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	registered(t, a, "file", 10, 1)
	writeFile(t, c.src("other"), 20, 2)

	r := a.p2pfs("register", c.src("other"), a.path("file/below"))
	require.NotZero(t, r.code, "a file became a directory")
	require.Contains(t, r.err, "not a directory")
	a.register(c.src("other"), "dir/below")
	r = a.p2pfs("register", c.src("other"), a.path("file"))
	require.NotZero(t, r.code, "other content took a taken name")
	require.Contains(t, r.err, "exists")
	require.NotZero(t, a.p2pfs("register", c.src("no such"), a.path("x")).code)
	require.NotZero(t, a.p2pfs("register", a.path("file"), a.path("y")).code, "a file of the mount registered in place")
	require.NotZero(t, a.p2pfs("register", "/dev/zero", a.path("z")).code, "a device registered")
	a.register(c.src("file"), "file") // equal content joins
	require.Equal(t, "dir\nfile\n", must(t, "ls", a.mnt), "a refused name was left behind")

	a.must("register", c.src("file"), c.src("other"), a.path("many/")) // several, into a directory
	require.Equal(t, "file\nother\n", must(t, "ls", a.path("many")))
}

func TestAFileOpenForWritingIsNotRegistered(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	src := c.src("f")
	writeFile(t, src, 100, 1)
	f, err := os.OpenFile(src, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	r := a.p2pfs("register", src, a.path("f"))
	require.NotZero(t, r.code, "registered while a writer has it open")
	require.NoError(t, f.Close())
	a.register(src, "f")
}

func TestASourceTheCallerMayNotReadIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	src := c.src("secret")
	writeFile(t, src, 100, 1)
	require.NoError(t, os.Chmod(src, 0o600))
	open := func(path string) { require.NoError(t, os.Chmod(path, 0o755)) }
	open(world.root)
	cmd := a.command("register", src, a.path("secret"), "--node", a.cache)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	r := runCmd(t, commandLimit, cmd)
	require.NotZero(t, r.code, "another user registered a file that he may not read")
	require.NotZero(t, run(t, "stat", a.path("secret")).code)
}

func TestAReadOnlyMountChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b", "--read-only")
	sum := registered(t, a, "f", smallBlock, 1)
	for _, script := range []string{`echo x >"$1/new"`, `echo x >>"$1/f"`, `: >"$1/f"`, `rm "$1/f"`, `mkdir "$1/d"`, `mv "$1/f" "$1/g"`, `chmod 600 "$1/f"`, `truncate -s 0 "$1/f"`, `ln "$1/f" "$1/g"`, `ln -s f "$1/g"`} {
		require.NotZero(t, run(t, "sh", "-c", script, "sh", b.mnt).code, "%s succeeded", script)
	}
	require.Equal(t, sum, digest(t, b.path("f")))
	require.Equal(t, sum, digest(t, a.path("f")))
	require.Equal(t, sum, digest(t, c.src("f")))
	require.Equal(t, "f\n", must(t, "ls", "-A", a.mnt))
}

func TestMappingsOfEveryStateWork(t *testing.T) {
	t.Parallel()
	for _, mode := range passthroughModes {
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--passthrough="+mode)
			a, b := c.start("a"), c.start("b")
			for i, order := range []string{"forward", "backward", "random"} {
				sum := registered(t, a, order, 12*smallChunk+77, uint64(i))
				for range 3 { // cold, then kept, then complete
					got := must(t, world.python, "testdata/reader.py", "mmap", b.path(order), order)
					require.Equal(t, sum, strings.TrimSpace(got), order)
				}
			}
		})
	}
}

func TestALostHandOverShowsNowhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	sum := registered(t, a, "f", 30*smallChunk, 1)
	// A handle and a mapping of the incomplete file go on while it becomes
	// complete and others open it anew.
	const hold = `
import hashlib, mmap, os, sys
f = open(sys.argv[1], "rb", buffering=0); m = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
ino = os.fstat(f.fileno()).st_ino; m[0]; print("held", flush=True); sys.stdin.readline()
g = open(sys.argv[1], "rb"); n = mmap.mmap(g.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
assert os.fstat(g.fileno()).st_ino == ino, "st_ino changed"
f.seek(0)
print(*{hashlib.sha256(x).hexdigest() for x in (m, n, f.read(), g.read())})`
	cmd := exec.Command(world.python, "-c", hold, b.path("f"))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	holder := launch(t, cmd)
	eventually(t, commandLimit, "the holder holds", func() bool {
		link, _ := os.Readlink(filepath.Join("/proc", itoa(holder.pid()), "fd", "3"))
		return strings.HasPrefix(link, b.path("f"))
	})
	b.must("get", b.path("f"))
	b.waitLocal("f")
	for range 3 {
		require.Equal(t, sum, digest(t, b.path("f")))
	}
	_, err = fmt.Fprintln(in)
	require.NoError(t, err)
	r := holder.finish(t, commandLimit)
	require.Zero(t, r.code, r.String())
	require.Equal(t, "held\n"+sum, strings.TrimSpace(string(r.out)))
}

func TestWalksThatOnlyStatFetchNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	for i := range 200 {
		writeFile(t, c.src(fmt.Sprintf("d/%d/f%d", i%7, i)), 5000, uint64(i))
	}
	a.register(c.src("d"), "d")
	must(t, "find", b.mnt, "-type", "f", "-size", "+1")
	must(t, "du", "-sh", b.mnt)
	must(t, "ls", "-lR", b.mnt)
	require.Zero(t, b.received())
	du := func(dir string) string { return must(t, "sh", "-c", `cd "$1" && du -s --apparent-size .`, "sh", dir) }
	files := func(dir string) string {
		return must(t, "sh", "-c", `cd "$1" && find . -type f -printf '%P %s\n' | sort`, "sh", dir)
	}
	require.NotEmpty(t, du(b.path("d")))
	require.Equal(t, files(c.src("d")), files(b.path("d")))
}

func TestLocksWorkOnTheMount(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	registered(t, a, "f", 10, 1)
	const lock = `
import fcntl, sys
f, g = open(sys.argv[1]), open(sys.argv[1])
fcntl.flock(f, fcntl.LOCK_EX)
try: fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: print("exclusive")
fcntl.lockf(open(sys.argv[1]), fcntl.LOCK_SH)`
	require.Equal(t, "exclusive\n", must(t, world.python, "-c", lock, a.path("f")))
}

func hexOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
