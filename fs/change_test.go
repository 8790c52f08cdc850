package fs

import (
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// sawNotices waits until the notifier has worked off what it was told.
func (d *daemon) quiet() {
	d.t.Helper()
	eventually(d.t, func() bool { return d.state().Waiting == 0 }, "notices worked off")
}

// After a replace elsewhere, open(2) gives the new bytes although neither the
// kernel nor what is known here has heard of it: the open is confirmed, the
// old inode is stale, and the kernel looks again.
func TestOpenAfterAReplaceElsewhere(t *testing.T) {
	t.Parallel()
	const size = 20_000
	d := mountFakes(t)
	d.file("f", 1, size, complete)
	u := newUser(t, d)
	for seed := uint64(2); seed < 12; seed++ {
		old := u.open("f")
		d.do(order{Op: "lag", On: true})
		// The same size and the same times: only the object tells.
		d.file("f", seed, size, complete)
		u.cat("f", seed, size)
		u.reads(old, seed-1, 0, size)
		u.close(old)
		d.do(order{Op: "lag"})
		d.on("changed", "f")
	}
}

func TestReplaceInALoopNeverFailsAnOpen(t *testing.T) {
	t.Parallel()
	const size = 5000
	d := mountFakes(t)
	d.file("f", 1, size, complete)
	u := newUser(t, d)
	var all sync.WaitGroup
	stop := make(chan struct{})
	var failed error
	all.Go(func() {
		for failed == nil {
			select {
			case <-stop:
				return
			default:
				began := time.Now()
				if err := u.try(wish{Op: "cat", Path: u.path("f"), N: size}, nil); !stoodStill(err, began) {
					failed = err
				}
			}
		}
	})
	for seed := uint64(2); seed < 300; seed++ {
		d.file("f", seed, size, complete)
		if seed%3 == 0 {
			d.on("changed", "f")
		}
	}
	close(stop)
	all.Wait()
	require.NoError(t, failed)
	u.cat("f", 299, size)
}

func TestOpenOfARemovedName(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 5000, complete)
	u := newUser(t, d)
	fd := u.open("f")
	d.do(order{Op: "lag", On: true})
	d.on("remove", "f")
	u.fails(syscall.ENOENT, wish{Op: "open", Path: u.path("f")})
	d.do(order{Op: "lag"})
	d.on("changed", "f")
	d.quiet()
	u.fails(syscall.ENOENT, wish{Op: "stat", Path: u.path("f")})
	u.reads(fd, 1, 0, 5000)
	require.Equal(t, int64(5000), u.do(wish{Op: "fstat", FD: fd}).Stat.Size)
}

// The kernel does not remember that a name was not there.
func TestNewNameIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []func(*order){func(*order) {}, watching} {
		d := mountFakes(t, mode)
		u := newUser(t, d)
		u.fails(syscall.ENOENT, wish{Op: "stat", Path: u.path("f")})
		d.file("f", 1, 100, complete)
		u.cat("f", 1, 100)
	}
}

func TestOpensAskTheStoreOnceOrNever(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]int64{ConsistencyOpen: 20, ConsistencyWatch: 0} {
		d := mountFakes(t, func(o *order) { o.Consistency = mode })
		u := newUser(t, d)
		for i := range 20 {
			d.file("f"+itoa(i), 1, 100, complete)
			u.cat("f"+itoa(i), 1, 100)
		}
		s := d.state()
		require.Equal(t, want, s.Confirms, mode)
		require.Equal(t, int64(20), s.Lookups, mode)
	}
}

func TestChangedAttributesAndSymlinks(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, watching)
	d.file("f", 1, 100, complete)
	d.do(order{Op: "link", Path: []byte("l"), Target: []byte("one")})
	u := newUser(t, d)
	u.do(wish{Op: "stat", Path: u.path("f")})
	require.Equal(t, "one", string(u.do(wish{Op: "readlink", Path: u.path("l")}).Target))

	d.do(order{Op: "link", Path: []byte("l"), Target: []byte("two")})
	d.on("changed", "l")
	d.quiet()
	require.Equal(t, "two", string(u.do(wish{Op: "readlink", Path: u.path("l")}).Target))

	d.do(order{Op: "attr", Path: []byte("f"), Mode: 0o400, MtimeNs: 2e18})
	d.on("changed", "f")
	d.quiet()
	st := u.do(wish{Op: "stat", Path: u.path("f")}).Stat
	require.Equal(t, uint32(0o400), st.Mode&0o777)
	require.Equal(t, int64(2e9), st.Mtim.Sec)
	u.cat("f", 1, 100)
}

func TestGapInvalidatesEverythingKnown(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, watching)
	d.do(order{Op: "dir", Path: []byte("d")})
	u := newUser(t, d)
	for i := range 20 {
		d.file("d/f"+itoa(i), uint64(i), 100, complete)
		u.cat("d/f"+itoa(i), uint64(i), 100)
	}
	d.on("remove", "d/f0")
	for i := 1; i < 20; i++ {
		d.file("d/f"+itoa(i), uint64(100+i), 200, complete)
	}
	d.do(order{Op: "changed", Path: []byte("d/"), Gap: true})
	d.quiet()
	u.fails(syscall.ENOENT, wish{Op: "stat", Path: u.path("d/f0")})
	for i := 1; i < 20; i++ {
		u.cat("d/f"+itoa(i), uint64(100+i), 200)
	}
}

func TestRemovedAndReplacedDirectories(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, watching)
	for _, dir := range []string{"gone", "other"} {
		d.do(order{Op: "dir", Path: []byte(dir)})
		d.file(dir+"/f", 1, 100, complete)
	}
	u := newUser(t, d)
	u.cat("gone/f", 1, 100)
	u.cat("other/f", 1, 100)
	u.do(wish{Op: "chdir", Path: u.path("gone")})

	d.on("remove", "gone/f")
	d.on("changed", "gone/f")
	d.on("remove", "gone")
	d.on("changed", "gone")
	d.quiet()
	u.fails(syscall.ENOENT, wish{Op: "stat", Path: u.path("gone")})
	u.fails(syscall.ENOENT, wish{Op: "stat", Path: u.path("gone/f")})

	d.on("remove", "other") // with what is in it, as rm -r elsewhere does
	d.do(order{Op: "dir", Path: []byte("other")})
	d.file("other/g", 2, 100, complete)
	d.on("changed", "other")
	d.quiet()
	u.cat("other/g", 2, 100)
	u.fails(syscall.ENOENT, wish{Op: "stat", Path: u.path("other/f")})
}

func TestStoreDown(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.do(order{Op: "dir", Path: []byte("d")})
	d.file("d/f", 1, 5000, complete)
	u := newUser(t, d)
	fd := u.open("d/f")
	d.do(order{Op: "down", On: true})
	u.reads(fd, 1, 0, 5000)
	u.do(wish{Op: "stat", Path: u.path("d/f")})
	u.fails(syscall.EIO, wish{Op: "stat", Path: u.path("d/never")})
	u.fails(syscall.EIO, wish{Op: "list", Path: u.path("d")})
	u.fails(syscall.EIO, wish{Op: "open", Path: u.path("d/f")})
	d.do(order{Op: "down"})
	u.cat("d/f", 1, 5000)
	u.fails(syscall.ENOENT, wish{Op: "stat", Path: u.path("d/never")})
}

func TestPathDescriptorOfAChangedFile(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 5000, complete)
	u := newUser(t, d)
	fd := u.open("f", unix.O_PATH)
	require.Zero(t, d.state().OpenFiles)
	d.file("f", 2, 6000, complete)
	d.on("changed", "f")
	d.quiet()
	u.fails(syscall.ESTALE, wish{Op: "open", Path: []byte("/proc/self/fd/" + itoa(fd))})
	u.cat("f", 2, 6000)
}

func TestInodesAreForgotten(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.do(order{Op: "dir", Path: []byte("d")})
	d.do(order{Op: "many", Path: []byte("d"), N: 20_000})
	out, err := exec.Command("find", d.point, "-type", "f", "-size", "0").Output()
	require.NoError(t, err)
	require.Equal(t, 20_000, strings.Count(string(out), "\n"))
	require.Greater(t, d.state().Inodes, 100)
	d.on("remove", "d")
	d.on("changed", "d") // makes the kernel drop all below it
	eventually(t, func() bool { return d.state().Inodes == 1 }, "forgotten")
}
