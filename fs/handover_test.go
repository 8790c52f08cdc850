package fs

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// handed waits until the daemon has handed over n inodes.
func (d *daemon) handed(n uint64) {
	d.t.Helper()
	eventually(d.t, func() bool { return d.state().Handovers == n }, "handed over")
}

func TestHandoverOfALargeOpenFile(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	d := mountFakes(t, handoverAt(1<<20))
	d.file("f", 1, size)
	u := newUser(t, d)
	old := u.open("f")
	u.reads(old, 1, 0, size/2)
	oldMap := u.mmap(old, size, true, false)
	u.sees(oldMap, 1, 0, size/4)
	ino := u.do(wish{Op: "fstat", FD: old}).Stat.Ino
	require.Zero(t, d.state().PassthroughOpens)
	eventually(t, func() bool { // what is read ahead may still be on its way to the daemon
		return d.state().ReadBytes >= 4096*u.do(wish{Op: "pages", FD: old}).Pages
	}, "all READs have come")

	d.on("complete", "f")
	d.handed(1)
	v := newUser(t, d)
	fresh := v.open("f")
	freshMap := v.mmap(fresh, size, true, false)
	require.Equal(t, uint64(1), d.state().PassthroughOpens)
	reads := d.state().Reads
	v.reads(fresh, 1, 0, size)
	v.sees(freshMap, 1, 0, size)
	require.Equal(t, reads, d.state().Reads, "the new handle reads by itself")
	require.Equal(t, ino, v.do(wish{Op: "fstat", FD: fresh}).Stat.Ino)
	require.Equal(t, ino, u.do(wish{Op: "fstat", FD: old}).Stat.Ino)

	u.reads(old, 1, 0, size)
	u.sees(oldMap, 1, 0, size)
	require.Greater(t, d.state().Reads, reads, "the old handle goes on as it was")

	// Closed and opened again, everything passes through, and the old inode
	// goes with its pages.
	u.close(old)
	u.do(wish{Op: "munmap", Map: oldMap})
	eventually(t, func() bool { return d.state().Inodes == 2 }, "the old inode is forgotten")
	u.cat("f", 1, size)
	require.Equal(t, uint64(2), d.state().PassthroughOpens)
}

func TestSmallOpenFileIsHandedOverAtItsLastClose(t *testing.T) {
	t.Parallel()
	const size = 200_000
	d := mountFakes(t)
	d.file("f", 1, size)
	u, v := newUser(t, d), newUser(t, d)
	old := u.open("f")
	u.reads(old, 1, 0, 100_000)
	u.do(wish{Op: "flock", FD: old, Flags: unix.LOCK_EX})
	d.on("complete", "f")

	// A lock held through the old handle is seen by the new one.
	fresh := v.open("f")
	v.fails(syscall.EWOULDBLOCK, wish{Op: "flock", FD: fresh, Flags: unix.LOCK_EX | unix.LOCK_NB})
	v.reads(fresh, 1, 0, size)
	require.Zero(t, d.state().PassthroughOpens)
	u.close(old)
	v.do(wish{Op: "flock", FD: fresh, Flags: unix.LOCK_EX | unix.LOCK_NB})
	require.Zero(t, d.state().Handovers)
	v.close(fresh)
	d.handed(1)

	fd := u.open("f")
	require.Zero(t, u.do(wish{Op: "pages", FD: fd}).Pages, "the pages read before are gone")
	reads := d.state().Reads
	u.reads(fd, 1, 0, size)
	require.Equal(t, reads, d.state().Reads)
}

// A loaded model must not be in memory twice: pages of the mount beside those
// of the local file.
func TestPagesAfterAColdLoad(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	for _, c := range []struct {
		name  string
		mount func(*order)
	}{{"passthrough", func(*order) {}}, {"no passthrough", noPassthrough}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t, c.mount, handoverAt(1<<20))
			d.file("f", 1, size)
			u := newUser(t, d)
			fd := u.open("f")
			eventually(t, func() bool { // others on the machine may drop caches
				u.reads(fd, 1, 0, size)
				return u.do(wish{Op: "pages", FD: fd}).Pages >= size/4096
			}, "pages are kept")
			d.on("complete", "f")
			u.close(fd)
			eventually(t, func() bool { return d.state().Waiting == 0 && d.state().OpenFiles == 0 }, "closed")
			d.quiet()
			fd = u.open("f")
			total := u.do(wish{Op: "pages", FD: fd}).Pages + u.do(wish{Op: "filepages", Path: []byte(d.cache)}).Pages
			require.LessOrEqual(t, total*4096, uint64(size*12/10), "pages are held once")
		})
	}
}

func TestCompletedWhileTheFileIsBeingOpened(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, handoverAt(1000))
	u := newUser(t, d)
	const size = 64_000
	for i := range 30 {
		name := "f" + itoa(i)
		d.file(name, uint64(i+1), size)
		done := make(chan error, 1)
		go func() { done <- u.try(wish{Op: "cat", Path: u.path(name), N: size}, nil) }()
		d.on("complete", name)
		require.NoError(t, <-done)
		d.closed()
		before := d.state().PassthroughOpens
		u.cat(name, uint64(i+1), size)
		require.Equal(t, before+1, d.state().PassthroughOpens)
	}
}

func TestDirectoriesSurviveHandovers(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, handoverAt(1000))
	d.do(order{Op: "dir", Path: []byte("d")})
	d.file("d/f", 1, 50_000)
	u := newUser(t, d)
	u.do(wish{Op: "chdir", Path: u.path("d")})
	fd := u.open("d/f")
	u.reads(fd, 1, 0, 50_000)
	d.on("complete", "d/f")
	d.handed(1)
	d.on("changed", "d")
	d.do(order{Op: "changed", Path: []byte("d/x"), Gap: true})
	d.do(order{Op: "changed", Path: []byte("x"), Gap: true})
	u.cat("d/f", 1, 50_000)
	wd := u.do(wish{Op: "getcwd"}).Target
	require.Equal(t, d.point+"/d", string(wd))
	require.False(t, strings.Contains(string(wd), "unreachable"))
}
