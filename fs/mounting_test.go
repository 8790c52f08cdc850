package fs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func mountOf(t *testing.T, point string) (mountEntry, bool) {
	t.Helper()
	mounts, err := readMounts()
	require.NoError(t, err)
	return mountAt(mounts, point)
}

// bind makes a directory visible at a place everybody may enter.
func bind(t *testing.T, dir string) string {
	t.Helper()
	place, err := os.MkdirTemp("/tmp", "p2pfs-bind-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(place, 0o755))
	require.NoError(t, unix.Mount(dir, place, "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		_ = unix.Unmount(place, unix.MNT_DETACH)
		_ = os.Remove(place)
	})
	return place
}

// overlay mounts an overlay file system and returns where.
func overlay(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, d), 0o755))
	}
	merged := filepath.Join(base, "merged")
	options := "lowerdir=" + base + "/lower,upperdir=" + base + "/upper,workdir=" + base + "/work"
	require.NoError(t, unix.Mount("overlay", merged, "overlay", 0, options))
	t.Cleanup(func() { _ = unix.Unmount(merged, unix.MNT_DETACH) })
	return merged
}

// mounting tries to mount and returns why it did not work.
func mounting(d *daemon, change ...func(*order)) error {
	o := order{Op: "mount", Mountpoint: d.point, CacheDir: d.cache, Passthrough: true}
	for _, c := range change {
		c(&o)
	}
	return d.try(o, nil)
}

func TestMountRefusals(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	at := func(p string) func(*order) { return func(o *order) { o.Mountpoint = p } }
	file := filepath.Join(d.cache, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	inCache := filepath.Join(d.cache, "mnt")
	require.NoError(t, os.Mkdir(inCache, 0o755))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(inCache, link))

	for _, c := range []struct {
		name, want string
		change     func(*order)
	}{
		{"missing", "does not exist", at(d.point + "/none")},
		{"a file", "is not a directory", func(o *order) { o.Mountpoint, o.CacheDir = file, d.point }},
		{"in the cache", "lies in the cache directory", at(inCache)},
		{"in the cache by a link", "lies in the cache directory", at(link)},
		{"above the cache", "lies in the mountpoint", at(filepath.Dir(d.cache))},
		{"a mountpoint", "is already a mountpoint: proc (type proc)", at("/proc")},
		{"bad consistency", "consistency", func(o *order) { o.Consistency = "maybe" }},
	} {
		err := mounting(d, c.change)
		require.ErrorContains(t, err, c.want, c.name)
	}

	d.mount()
	other := startDaemon(t)
	require.ErrorContains(t, mounting(other, at(d.point)), "is already a mountpoint: test (type fuse.p2pfs)")
	newUser(t, d).do(wish{Op: "stat", Path: []byte(d.point)})
}

func TestDeadMountIsDetached(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 5000, complete)
	u := newUser(t, d)
	fd := u.open("f")
	d.kill()
	u.fails(syscall.ENOTCONN, wish{Op: "stat", Path: u.path("none")})
	u.reads(fd, 1, 0, 5000) // passed through: it lives on

	again := startDaemon(t)
	again.point = d.point
	again.mount()
	again.file("g", 2, 6000)
	v := newUser(t, again)
	v.cat("g", 2, 6000)
	mounts, err := readMounts()
	require.NoError(t, err)
	n := 0
	for _, m := range mounts {
		if m.point == d.point {
			n++
		}
	}
	require.Equal(t, 1, n)
}

func TestUnmount(t *testing.T) {
	t.Parallel()
	ends := func(t *testing.T, d *daemon) {
		t.Helper()
		eventually(t, func() bool { _, ok := mountOf(t, d.point); return !ok }, "still mounted")
		eventually(t, func() bool { return d.state().Ended }, "the daemon did not notice")
		s := d.state()
		require.Zero(t, s.OpenFiles)
		require.Zero(t, s.Locals)
		require.Zero(t, s.Readers)
	}
	for _, c := range []struct {
		name string
		end  func(t *testing.T, d *daemon)
	}{
		{"by the daemon", func(t *testing.T, d *daemon) { d.do(order{Op: "unmount"}) }},
		{"by umount", func(t *testing.T, d *daemon) { require.NoError(t, exec.Command("umount", d.point).Run()) }},
		{"by fusermount3", func(t *testing.T, d *daemon) {
			require.NoError(t, exec.Command("fusermount3", "-u", d.point).Run())
		}},
		{"lazily", func(t *testing.T, d *daemon) { d.do(order{Op: "unmount", Lazy: true}) }},
		{"by force", func(t *testing.T, d *daemon) { d.do(order{Op: "unmount", Force: true}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t)
			d.file("f", 1, 5000, complete)
			d.file("g", 2, 5000)
			u := newUser(t, d)
			u.cat("f", 1, 5000)
			u.cat("g", 2, 5000)
			c.end(t, d)
			ends(t, d)
			d.do(order{Op: "unmount"}) // once more is no error
		})
	}
}

func TestBusyUnmountNamesTheHolders(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 5000, complete)
	u := newUser(t, d)
	fd := u.open("f")
	err := d.try(order{Op: "unmount", Within: 10 * time.Second}, nil)
	require.ErrorContains(t, err, "is in use by ")
	require.ErrorContains(t, err, "("+itoa(u.cmd.Process.Pid)+")")
	u.reads(fd, 1, 0, 5000)

	m := u.mmap(fd, 5000, true, false)
	u.close(fd)
	require.ErrorContains(t, d.try(order{Op: "unmount", Within: 10 * time.Second}, nil), "("+itoa(u.cmd.Process.Pid)+")", "mapped")
	u.do(wish{Op: "munmap", Map: m})
	u.do(wish{Op: "chdir", Path: []byte(d.point)})
	require.ErrorContains(t, d.try(order{Op: "unmount", Within: 10 * time.Second}, nil), "("+itoa(u.cmd.Process.Pid)+")", "working directory")
	u.do(wish{Op: "chdir", Path: []byte("/")})
	d.do(order{Op: "unmount"})
}

func TestLazyUnmountServesWhatIsOpen(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 50_000)
	u := newUser(t, d)
	fd := u.open("f")
	u.reads(fd, 1, 0, 4096)
	d.do(order{Op: "unmount", Lazy: true})
	_, ok := mountOf(t, d.point)
	require.False(t, ok)
	u.reads(fd, 1, 0, 50_000)
	require.False(t, d.state().Ended)
	u.close(fd)
	eventually(t, func() bool { return d.state().Ended }, "the last close ends it")
}

func TestUnmountWithReadsUnderWayIsBounded(t *testing.T) {
	t.Parallel()
	for _, force := range []bool{false, true} {
		d := mountFakes(t)
		d.file("f", 1, 1<<20, shut)
		u := newUser(t, d)
		fd := u.open("f")
		failed := make(chan error, 1)
		go func() { failed <- u.try(wish{Op: "pread", FD: fd, N: 4096}, nil) }()
		eventually(t, func() bool { return d.state().Reads > 0 }, "the read arrived")
		if !force { // the reader dies, its read-ahead stays
			u.kill()
			<-failed
		}
		start := time.Now()
		d.do(order{Op: "unmount", Force: force, Within: 90 * time.Second})
		require.Less(t, time.Since(start), 60*time.Second)
		if force {
			require.Error(t, <-failed)
		}
		eventually(t, func() bool { return d.state().Ended }, "ended")
	}
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 5000)
	newUser(t, d).cat("f", 1, 5000)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	d.reap()
	require.True(t, d.cmd.ProcessState.Success(), d.cmd.ProcessState.String())
	_, ok := mountOf(t, d.point)
	require.False(t, ok)
}

func TestParseMounts(t *testing.T) {
	t.Parallel()
	text := strings.Join([]string{
		`36 35 98:0 /mnt1 /mnt\0402\134x rw,noatime master:1 shared:2 - ext3 /dev/ro\011ot rw,errors=continue`,
		`nonsense`,
		`40 35 0:45 / /a rw - fuse.p2pfs src rw`,
		`41 35 0:46 / /a rw - tmpfs none rw`,
		`42 35 0:47 / /b\ rw - tmpfs none`,
	}, "\n")
	got, err := parseMounts(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, []mountEntry{
		{"98:0", `/mnt 2\x`, "ext3", "/dev/ro\tot"},
		{"0:45", "/a", "fuse.p2pfs", "src"},
		{"0:46", "/a", "tmpfs", "none"},
	}, got[:3])
	m, ok := mountAt(got, "/a")
	require.True(t, ok)
	require.Equal(t, "tmpfs", m.fstype, "the topmost one")
}

func FuzzParseMounts(f *testing.F) {
	f.Add(`36 35 98:0 /mnt1 /mnt\0402 rw - ext3 /dev/root rw`)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseMounts(strings.NewReader(text))
	})
}
