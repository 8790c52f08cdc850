package fs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// at returns the path of a file below the mountpoint. The daemon is a process
// of its own, so the test may use the mount itself.
func (d *daemon) at(path string) string { return filepath.Join(d.point, path) }

// isElsewhere checks what other nodes see of a file.
func (d *daemon) isElsewhere(path string, want []byte) {
	d.t.Helper()
	s := d.seen(path)
	require.True(d.t, s.Exists, path)
	require.Equal(d.t, int64(len(want)), s.Size, path)
	require.Equal(d.t, sum(want), s.Sum, path)
}

// closed waits until the daemon has heard of every close.
func (d *daemon) closed() state {
	d.t.Helper()
	eventually(d.t, func() bool {
		s := d.state()
		return s.OpenFiles == 0 && s.Uses == 0 && s.Waiting == 0 && s.Readers == 0 && s.Locals == 0
	}, "closed")
	return d.state()
}

func openFile(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o644)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t *testing.T, f *os.File, b []byte) {
	t.Helper()
	_, err := f.Write(b)
	require.NoError(t, err)
}

func contentOf(seed uint64, n int) []byte {
	b := make([]byte, n)
	content(b, seed, 0)
	return b
}

func readBack(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), "%s: %d bytes, want %d", path, len(got), len(want))
}

// each mode a file can be opened in for writing.
var modes = map[string][]func(*order){
	"passthrough": {writable},
	"buffered":    {writable, noPassthrough},
	"watch":       {writable, watching},
}

func TestCreateWriteClose(t *testing.T) { // W1, W2, R4
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t, mode...)
			data := contentOf(1, 3<<20+77)
			f := openFile(t, d.at("f"), os.O_CREATE|os.O_EXCL|os.O_WRONLY)
			write(t, f, data[:1<<20])
			readBack(t, d.at("f"), data[:1<<20])
			require.False(t, d.seen("f").Exists)
			write(t, f, data[1<<20:])
			info, err := os.Stat(d.at("f"))
			require.NoError(t, err)
			require.Equal(t, int64(len(data)), info.Size())
			require.NoError(t, f.Close())
			d.isElsewhere("f", data)
			d.closed()
			readBack(t, d.at("f"), data)
			s := d.closed()
			require.Equal(t, 1, s.Made)
			if name == "passthrough" {
				require.Equal(t, uint64(1), s.PassthroughOpens, "after its last close it passes through")
			}
		})
	}
}

// A publish leaves the inode, its pages and its name as they are.
func TestOwnPublishNotifiesLittle(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	require.NoError(t, os.WriteFile(d.at("f"), contentOf(1, 10_000), 0o600))
	before, err := os.Stat(d.at("f"))
	require.NoError(t, err)
	d.closed()
	fd := openFile(t, d.at("f"), os.O_RDONLY)
	for i := range 5 {
		f := openFile(t, d.at("f"), os.O_WRONLY)
		write(t, f, contentOf(uint64(i), 10_000))
		require.NoError(t, f.Close())
	}
	readBack(t, d.at("f"), contentOf(4, 10_000))
	after, err := os.Stat(d.at("f"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	got := make([]byte, 10_000)
	_, err = fd.ReadAt(got, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(contentOf(1, 10_000), got), "who had it open keeps the old object") // R2, W5
	d.quiet()
}

func TestRewriteUnderReaders(t *testing.T) { // R2, W5, W6
	t.Parallel()
	const size = 200_000
	kinds := map[string][]func(*order){"complete": {complete}, "incomplete": {}, "empty": {}}
	for kind, how := range kinds {
		for mode, mount := range modes {
			for _, flags := range []int{os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_CREATE | os.O_TRUNC, os.O_WRONLY | os.O_APPEND} {
				t.Run(kind+"-"+mode+"-"+itoa(flags), func(t *testing.T) {
					t.Parallel()
					d := mountFakes(t, mount...)
					n := size
					if kind == "empty" {
						n = 0
					}
					old := contentOf(1, n)
					d.file("f", 1, int64(n), how...)
					reader := openFile(t, d.at("f"), os.O_RDONLY)
					first := make([]byte, min(n, 5000))
					_, err := reader.ReadAt(first, 0)
					require.NoError(t, err)
					before, err := reader.Stat()
					require.NoError(t, err)

					w := openFile(t, d.at("f"), flags)
					want := append([]byte(nil), old...)
					if flags&os.O_TRUNC != 0 {
						want = nil
					}
					if flags&os.O_APPEND != 0 {
						write(t, w, []byte("appended"))
						want = append(want, "appended"...)
					} else {
						_, err = w.WriteAt([]byte("changed"), 3000)
						require.NoError(t, err)
						want = append(want, make([]byte, max(0, 3007-len(want)))...)
						copy(want[3000:], "changed")
					}
					readBack(t, d.at("f"), want) // R4
					require.NoError(t, w.Close())
					d.isElsewhere("f", want)
					readBack(t, d.at("f"), want)
					got := make([]byte, n)
					_, err = reader.ReadAt(got, 0)
					require.NoError(t, err)
					require.True(t, bytes.Equal(old, got))
					after, err := os.Stat(d.at("f"))
					require.NoError(t, err)
					require.Equal(t, before.Sys().(*syscall.Stat_t).Ino, after.Sys().(*syscall.Stat_t).Ino)
					require.NoError(t, reader.Close())
					d.closed()
					readBack(t, d.at("f"), want)
				})
			}
		}
	}
}

func sh(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "-euc", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", script, out)
	return string(out)
}

func TestShells(t *testing.T) { // W2, W3
	t.Parallel()
	for name, c := range map[string]struct {
		script, want string
		made         int
	}{
		"redirect":     {"echo a > f", "a\n", 1},
		"over a file":  {"echo long line > f; exec > f; echo b", "b\n", 2},
		"external":     {"/bin/echo a > f", "a\n", 1},
		"two children": {"(cat " + "/dev/null; /bin/echo a; sleep 0.05; /bin/echo b) > f", "a\nb\n", 1},
		"group":        {"{ /bin/echo a; sleep 0.05; /bin/echo b; } > f", "a\nb\n", 1},
		"append":       {"echo a > f; echo b >> f", "a\nb\n", 2},
		"inherited":    {"exec 5> f; exec 6< <(sleep 0.1; /bin/echo late >&5); exec 5>&-; cat <&6", "late\n", 1},
		"handed to a child": {`python3 -c 'import subprocess
with open("f", "w") as f: p = subprocess.Popen(["sh", "-c", "sleep 0.1; echo late"], stdout=f)
p.wait()'`, "late\n", 1},
		"touch":              {"touch f", "", 1},
		"never written":      {": > f", "", 1},
		"truncated":          {"echo a > f; truncate -s 1 f", "a", 2},
		"cut to nothing":     {"echo a > f; : > f", "", 2},
		"copy":               {"printf abc > g; cp g f", "abc", 2},
		"moved into place":   {"printf abc > g; mv g f", "abc", 1},
		"pipeline":           {"seq 1 3 | sort -rn | tee f > /dev/null", "3\n2\n1\n", 1},
		"dd without cutting": {"printf abcdef > f; printf X | dd of=f bs=1 seek=2 conv=notrunc status=none", "abXdef", 2},
		"sed in place":       {"echo a > f; sed -i s/a/b/ f", "b\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t, writable)
			sh(t, d.point, c.script)
			eventually(t, func() bool { return d.seen("f").Exists }, "published")
			s := d.closed()
			d.isElsewhere("f", []byte(c.want))
			require.Equal(t, c.made, s.Made, "publishes")
			readBack(t, d.at("f"), []byte(c.want))
			require.Zero(t, s.PublishesFailed)
		})
	}
}

// What touch(1) made is there when it returns, though it duplicates its
// descriptor like a shell.
func TestTouchPublishesAtClose(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	for i := range 20 {
		name := "f" + itoa(i)
		require.NoError(t, exec.Command("touch", d.at(name)).Run())
		require.True(t, d.seen(name).Exists)
	}
}

func TestDup(t *testing.T) { // W2
	t.Parallel()
	d := mountFakes(t, writable)
	f := openFile(t, d.at("f"), os.O_CREATE|os.O_WRONLY)
	fd, err := unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	write(t, f, []byte("one"))
	require.NoError(t, f.Close())
	d.isElsewhere("f", []byte("one"))
	_, err = unix.Write(fd, []byte("two"))
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	d.isElsewhere("f", []byte("onetwo"))
	require.Equal(t, 2, d.closed().Made)
}

func TestMappings(t *testing.T) { // W3
	t.Parallel()
	const size = 100_000
	d := mountFakes(t, writable)
	f := openFile(t, d.at("f"), os.O_CREATE|os.O_RDWR)
	require.NoError(t, f.Truncate(size))
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	want := contentOf(1, size)
	copy(m, want)
	require.NoError(t, unix.Msync(m, unix.MS_SYNC))
	readBack(t, d.at("f"), want)
	require.False(t, d.seen("f").Exists)
	copy(m[5000:], "dirty")
	copy(want[5000:], "dirty")
	require.NoError(t, f.Close()) // writes back what is dirty
	d.isElsewhere("f", want)
	copy(m[9000:], "late")
	copy(want[9000:], "late")
	require.NoError(t, unix.Munmap(m))
	d.closed()
	d.isElsewhere("f", want)
	readBack(t, d.at("f"), want)
}

func TestAppendersShare(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	sh(t, d.point, `
		for p in 1 2 3; do (for i in $(seq 100); do echo $p-$i; done >> f) & done; wait`)
	d.closed()
	got, err := os.ReadFile(d.at("f"))
	require.NoError(t, err)
	require.Len(t, strings.Fields(string(got)), 300)
	d.isElsewhere("f", got)
}

func TestUnlinkedFilesGoOn(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	f := openFile(t, d.at("f"), os.O_CREATE|os.O_RDWR)
	write(t, f, []byte("before"))
	require.NoError(t, os.Remove(d.at("f")))
	write(t, f, []byte("after"))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Fd()), &st))
	require.Zero(t, st.Nlink)
	require.Equal(t, int64(11), st.Size)
	require.NoError(t, f.Chmod(0o600))
	require.NoError(t, f.Truncate(8))
	got := make([]byte, 8)
	_, err := f.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "beforeaf", string(got))
	again := openFile(t, "/proc/self/fd/"+itoa(int(f.Fd())), os.O_RDONLY)
	require.NoError(t, again.Close())
	require.NoError(t, f.Close())
	require.False(t, d.seen("f").Exists)

	// Published, then removed while it is read. N8
	require.NoError(t, os.WriteFile(d.at("g"), contentOf(1, 9000), 0o644))
	d.closed()
	r := openFile(t, d.at("g"), os.O_RDONLY)
	require.NoError(t, os.Remove(d.at("g")))
	require.NoError(t, unix.Fstat(int(r.Fd()), &st))
	require.Zero(t, st.Nlink)
	require.Equal(t, int64(9000), st.Size)
	got = make([]byte, 9000)
	_, err = r.ReadAt(got, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(contentOf(1, 9000), got))
	require.NoError(t, r.Close())
	d.closed()
}
