package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// xattrsBelow lists the extended attributes of a tree, the top's aside.
func xattrsBelow(t testing.TB, dir string) string {
	t.Helper()
	return must(t, "sh", "-euc", `cd "$1" && find . -mindepth 1 ! -type l -print0 | sort -z | xargs -0 getfattr -d -m - -e hex --`, "sh", dir)
}

func setXAttr(t testing.TB, path, name, value string) {
	t.Helper()
	must(t, "setfattr", "-n", name, "-v", value, path)
}

func xattr(t testing.TB, path, name string) string {
	t.Helper()
	return must(t, "getfattr", "--only-values", "--absolute-names", "-n", name, path)
}

// soonXAttr waits until the news of a change has come to another node.
func soonXAttr(t testing.TB, path, name, want string) {
	t.Helper()
	eventually(t, commandLimit, name+" of "+path, func() bool {
		r := run(t, "getfattr", "--only-values", "--absolute-names", "-n", name, path)
		return r.code == 0 && string(r.out) == want
	})
}

// plantXAttrs makes a tree with extended attributes.
func plantXAttrs(t testing.TB, root string) {
	t.Helper()
	plantTree(t, root)
	for _, name := range []string{"deep", "deep/er/f0", "deep/er/f5", "empty", "name with spaces and ünïcode", "not utf-8 \xff\n"} {
		setXAttr(t, filepath.Join(root, name), "user.sha256", "0x00ff0a00")
		setXAttr(t, filepath.Join(root, name), "user.empty", "")
	}
	setXAttr(t, filepath.Join(root, "deep/er/f1"), "user.long."+strings.Repeat("n", 240), strings.Repeat("v", 2000))
}

// A6, W12
func TestToolsKeepExtendedAttributes(t *testing.T) {
	t.Parallel()
	p := newPair(t, "--xattr")
	tree := filepath.Join(p.src, "tree")
	plantXAttrs(t, tree)
	want, wantXAttrs := listing(t, "list", tree), xattrsBelow(t, tree)
	require.Contains(t, wantXAttrs, "user.sha256=0x00ff0a00")
	for name, how := range map[string]string{
		"cp":     `cp -a --preserve=xattr "$1/." "$2"`,
		"rsync":  `rsync -aX@-1 "$1/" "$2"`,
		"rsyncI": `rsync -aX@-1 --inplace "$1/" "$2"`,
		"tar":    `tar -C "$1" --format=posix --xattrs -c . | tar -C "$2" --xattrs -x`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := p.mkdir(t, name)
			must(t, "sh", "-euc", how, "sh", tree, a)
			sameListing(t, "list", want, a)
			sameListing(t, "list", want, b)
			require.Equal(t, wantXAttrs, xattrsBelow(t, a))
			eventually(t, commandLimit, "b has heard of all", func() bool { return xattrsBelow(t, b) == wantXAttrs })
			for _, dir := range []string{a, b} { // a second run finds nothing to do, on either node
				require.Empty(t, must(t, "rsync", "-aXi@-1", tree+"/", dir), "rsync found a difference in %s", dir)
			}
			must(t, "mv", b+"/deep", b+"/moved") // the other node renames
			must(t, "mv", b+"/moved/er/f5", b+"/f5")
			require.Contains(t, must(t, "getfattr", "-d", "--absolute-names", a+"/f5"), "user.sha256")
			must(t, "mv", b+"/f5", b+"/moved/er/f5")
			soonAbsent(t, a+"/deep")             // else it is moved into that
			must(t, "mv", b+"/moved", a+"/deep") // between two mounts: copied
			require.Equal(t, wantXAttrs, xattrsBelow(t, a))
		})
	}
}

// A6
func TestExtendedAttributesStayWithTheName(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--xattr")
	a, b := c.start("a"), c.start("b")
	plain := c.start("plain", "--xattr=false")
	must(t, "mkdir", a.path("d"))
	// On a descriptor, before the file is published.
	must(t, world.python, "-c", `
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(fd, b"one")
os.setxattr(fd, "user.fd", b"written", os.XATTR_CREATE)
os.setxattr(sys.argv[1], "user.path", b"written")
assert os.listxattr(fd) == ["user.fd", "user.path"]
os.close(fd)
`, a.path("d/f"))
	require.Equal(t, "written", xattr(t, b.path("d/f"), "user.fd"))
	require.Equal(t, "written", xattr(t, b.path("d/f"), "user.path"))

	setXAttr(t, b.path("d/f"), "user.b", "set on b") // published: seen everywhere
	soonXAttr(t, a.path("d/f"), "user.b", "set on b")
	must(t, "setfattr", "-x", "user.fd", a.path("d/f"))
	for _, n := range []*node{a, b, plain} { // overwritten and appended to, also where none are offered
		must(t, "sh", "-euc", `echo "$2" >"$1"; echo more >>"$1"`, "sh", n.path("d/f"), n.name)
	}
	must(t, "chmod", "600", b.path("d/f"))
	must(t, "mkdir", b.path("e"))
	setXAttr(t, a.path("d"), "user.dir", "of a")
	must(t, "mv", plain.path("d/f"), plain.path("e/g")) // across
	must(t, "mv", plain.path("d"), plain.path("e/d"))
	must(t, "truncate", "-s", "1", plain.path("e/g"))
	must(t, "cp", "/etc/hostname", plain.path("e/over"))
	setXAttr(t, b.path("e/over"), "user.old", "gone with the file that had the name")
	must(t, "sh", "-euc", `echo new >"$1/n"; setfattr -n user.new -v new "$1/n"; mv "$1/n" "$1/over"`, "sh", a.path("e"))

	// Registering takes none along, and leaves those that the name has.
	writeFile(t, c.src("r"), smallBlock, 1)
	setXAttr(t, c.src("r"), "user.src", "of the source")
	a.register(c.src("r"), "r")
	require.Empty(t, attrs(t, a.path("r")))
	setXAttr(t, a.path("r"), "user.r", "1")
	writeFile(t, c.src("again/r"), 2*smallBlock, 2)
	a.must("register", "--replace", c.src("again/r"), a.path("r"))
	require.Equal(t, "user.r=\"1\"\n\n", attrs(t, a.path("r")))

	check := func(nodes ...*node) {
		t.Helper()
		for _, n := range nodes {
			soonXAttr(t, n.path("e/g"), "user.b", "set on b")
			require.Equal(t, "user.b=\"set on b\"\nuser.path=\"written\"\n\n", attrs(t, n.path("e/g")))
			require.Equal(t, "user.dir=\"of a\"\n\n", attrs(t, n.path("e/d")))
			soonXAttr(t, n.path("e/over"), "user.new", "new") // b knew the file that had the name
			require.Equal(t, "user.new=\"new\"\n\n", attrs(t, n.path("e/over")))
		}
	}
	check(a, b)
	a.kill()
	a.start()
	b.stop()
	b.start()
	check(a, b)
}

// attrs lists the extended attributes of one path, without its name.
func attrs(t testing.TB, path string) string {
	t.Helper()
	_, list, _ := strings.Cut(must(t, "getfattr", "-d", "--absolute-names", path), "\n")
	return list
}

// A6
func TestTwoNodesSetExtendedAttributesAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--xattr")
	a, b := c.start("a"), c.start("b")
	must(t, "cp", "/etc/hostname", a.path("f"))
	const each = 20
	var wg sync.WaitGroup
	for _, n := range []*node{a, b} {
		wg.Go(func() {
			r := runCmd(t, commandLimit, exec.Command(world.python, "-c", `
import os, sys
for i in range(int(sys.argv[3])):
    os.setxattr(sys.argv[1], f"user.{sys.argv[2]}.{i}", b"x", os.XATTR_CREATE)
`, n.path("f"), n.name, itoa(each)))
			if r.code != 0 {
				t.Error(r)
			}
		})
	}
	wg.Wait()
	for _, n := range []*node{a, b} {
		eventually(t, commandLimit, "all of them on "+n.name, func() bool {
			return strings.Count(attrs(t, n.path("f")), "user.") == 2*each
		})
	}
}

// A6, N6
func TestExtendedAttributesComeBackWithTheStore(t *testing.T) {
	t.Parallel()
	for _, w := range wipes {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--xattr")
			s := ownStore(t, c)
			a, b := c.start("a"), c.start("b")
			must(t, "mkdir", a.path("d"))
			must(t, "cp", "/etc/hostname", a.path("d/f"))
			setXAttr(t, a.path("d"), "user.a", "dir")
			setXAttr(t, a.path("d/f"), "user.a", "file")
			soonXAttr(t, b.path("d/f"), "user.a", "file")
			since := time.Now()
			w.wipe(t, s)
			restoredSince(t, since, a, b)
			for _, n := range []*node{a, b} {
				soonXAttr(t, n.path("d"), "user.a", "dir")
				soonXAttr(t, n.path("d/f"), "user.a", "file")
			}
			setXAttr(t, b.path("d/f"), "user.b", "after")
			soonXAttr(t, a.path("d/f"), "user.b", "after")
		})
	}
}

// A6
func TestExtendedAttributesUnderStress(t *testing.T) {
	t.Parallel()
	p := newPair(t, "--xattr")
	a, _ := p.mkdir(t, "stress")
	must(t, "stress-ng", "--temp-path", a, "--xattr", "2", "--timeout", "3s")
	p.healthy(t)
}
