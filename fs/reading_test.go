package fs

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// sizes lie on and around the edges of pages, blocks and requests.
var sizes = []int64{1, 4095, 4096, 4097, 16384, 16385, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 123}

func TestReadInEveryState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		mount  func(*order)
		file   func(*order)
		reads  bool // the daemon sees reads
		direct int
	}{
		{"cold", nil, nil, true, 0},
		{"cold, pieces", nil, func(o *order) { o.Short = true }, true, 0},
		{"cold, memory", nil, func(o *order) { o.AsMem = true }, true, 0},
		{"cold, pieces of memory", nil, func(o *order) { o.AsMem, o.Short = true, true }, true, 0},
		{"cold, O_DIRECT", nil, nil, true, unix.O_DIRECT},
		{"complete", nil, complete, false, 0},
		{"complete, O_DIRECT", nil, complete, false, unix.O_DIRECT},
		{"cold, no passthrough", noPassthrough, nil, true, 0},
		{"complete, no passthrough", noPassthrough, complete, true, 0},
		{"complete, O_DIRECT, no passthrough", noPassthrough, complete, true, unix.O_DIRECT},
		{"watch", watching, complete, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			change := c.mount
			if change == nil {
				change = func(*order) {}
			}
			d := mountFakes(t, change)
			u := newUser(t, d)
			for i, size := range sizes {
				seed := uint64(i + 1)
				f := order{Op: "file", Path: []byte("f" + itoa(i)), Seed: seed, Size: size}
				if c.file != nil {
					c.file(&f)
				}
				d.do(f)
				fd := u.open(string(f.Path), c.direct)
				s := u.do(wish{Op: "pread", FD: fd, N: size + 8192})
				require.Equal(t, size, s.N)
				require.Equal(t, wanted(seed, 0, size), s.Sum)
				shared := u.mmap(fd, size, true, false)
				private := u.mmap(fd, size, false, i%2 == 0)
				u.close(fd)
				u.sees(shared, seed, 0, size)
				u.sees(private, seed, 0, size)
			}
			require.Equal(t, c.reads, d.state().Reads > 0)
		})
	}
}

func TestEmptyFile(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 0)
	u := newUser(t, d)
	u.cat("f", 1, 0)
	require.Zero(t, d.state().Readers)
}

func TestFileBeyondFourGiB(t *testing.T) {
	t.Parallel()
	const size = 5<<30 + 77
	d := mountFakes(t)
	d.file("f", 9, size)
	u := newUser(t, d)
	fd := u.open("f")
	for _, off := range []int64{0, 1<<31 - 100, 1<<32 - 100, size - 200} {
		u.reads(fd, 9, off, 200)
	}
	end := u.do(wish{Op: "pread", FD: fd, Off: size - 10, N: 100})
	require.Equal(t, int64(10), end.N)
	require.Less(t, d.state().Fetched, int64(32<<20))
}

func TestPassthroughIsUsed(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 3<<20, complete)
	u, v := newUser(t, d), newUser(t, d)
	a, b := u.open("f"), v.open("f")
	u.reads(a, 1, 0, 3<<20)
	v.reads(b, 1, 4097, 1<<20)
	m := u.mmap(a, 3<<20, true, false)
	u.sees(m, 1, 0, 3<<20)
	s := d.state()
	require.Equal(t, PassthroughOn, s.Passthrough, s.PassthroughReason)
	require.Equal(t, uint64(2), s.PassthroughOpens)
	require.Zero(t, s.Reads)
	require.Equal(t, int64(1), s.Locals, "one file held for both")
	v.close(b)
	u.close(a)
	// The mapping is of the local file itself.
	eventually(t, func() bool { return d.state().Locals == 0 }, "given back")
	u.sees(m, 1, 0, 3<<20)
}

// An order of opens and closes that mixes handles of one inode must never end
// in EIO, whatever became complete in between.
func TestMixedOpensNeverFail(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, handoverAt(1<<20))
	u := newUser(t, d)
	const size = 100_000
	d.file("f", 1, size)
	var fds []int
	step := func(open bool) {
		if open {
			fds = append(fds, u.open("f"))
		} else {
			u.close(fds[0])
			fds = fds[1:]
		}
		if len(fds) == 0 { // what is released later would count as open
			d.closed()
		}
		for _, fd := range fds {
			u.reads(fd, 1, 0, size)
		}
	}
	for _, open := range []bool{true, true, false} {
		step(open)
	}
	d.on("complete", "f")
	for _, open := range []bool{true, true, false, false, true, false, false, true, true, false, true} {
		step(open)
	}
	s := d.state()
	require.NotZero(t, s.PassthroughOpens)
	require.Zero(t, s.PassthroughFailed)
}

func TestOneFailedRegistrationLeavesOthersPassing(t *testing.T) {
	t.Parallel()
	upper := overlay(t)
	d := mountFakes(t)
	d.file("deep", 1, 50_000, complete, func(o *order) { o.Dir = upper })
	d.file("flat", 2, 50_000, complete)
	u := newUser(t, d)
	u.cat("deep", 1, 50_000)
	u.cat("flat", 2, 50_000)
	eventually(t, func() bool { // others on the machine may drop caches
		before := d.state().Reads
		u.cat("deep", 1, 50_000)
		return d.state().Reads == before
	}, "its pages are kept")
	u.cat("flat", 2, 50_000)
	s := d.state()
	require.Equal(t, PassthroughOn, s.Passthrough)
	require.Contains(t, s.PassthroughReason, "stacked too deep")
	require.Equal(t, uint64(2), s.PassthroughOpens)
	require.Equal(t, uint64(1), s.PassthroughFailed, "the device is remembered")
}

func TestCacheOnOverlayPassesThrough(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	d.cache = overlay(t)
	d.mount()
	d.file("f", 1, 50_000, complete)
	newUser(t, d).cat("f", 1, 50_000)
	s := d.state()
	require.Equal(t, uint64(1), s.PassthroughOpens, s.PassthroughReason)
	require.Zero(t, s.Reads)
}

func TestPagesAreKeptWithoutPassthrough(t *testing.T) {
	t.Parallel()
	for _, state := range []func(*order){complete, func(*order) {}} {
		d := mountFakes(t, noPassthrough)
		d.file("f", 1, 3<<20, state)
		u := newUser(t, d)
		u.cat("f", 1, 3<<20)
		require.Equal(t, uint64(3<<20), d.state().ReadBytes)
		eventually(t, func() bool { // others on the machine may drop caches
			before := d.state().Reads
			u.cat("f", 1, 3<<20)
			return d.state().Reads == before
		}, "the pages are kept across opens")
		require.Equal(t, PassthroughOff, d.state().Passthrough)
	}
}

func TestReadErrorsAreErrors(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 50_000)
	u := newUser(t, d)
	fd := u.open("f")
	m := u.mmap(fd, 50_000, true, true)
	u.sees(m, 1, 0, 100) // what is mapped stays when others on the machine drop caches
	d.on("fail", "f")
	u.fails(syscall.EIO, wish{Op: "pread", FD: fd, Off: 40_960, N: 100})
	u.fails(syscall.EFAULT, wish{Op: "look", Map: m, Off: 45_056, N: 10})
	u.sees(m, 1, 0, 100)
	d.on("heal", "f")
	u.reads(fd, 1, 0, 50_000)
	u.sees(m, 1, 0, 50_000)
}

// A registered file that is cut short shows an end, never zeros.
func TestTruncatedLocalFileIsNotZeros(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, noPassthrough)
	d.file("f", 1, 3<<20, complete)
	u := newUser(t, d)
	fd := u.open("f")
	u.reads(fd, 1, 0, 4096)
	d.on("truncate", "f")
	u.fails(syscall.EIO, wish{Op: "pread", FD: fd, Off: 2 << 20, N: 4096})
}

// An edit of a registered file shows at the next open, whatever the kernel
// has cached.
func TestEditedLocalFileShowsWithoutPassthrough(t *testing.T) {
	t.Parallel()
	for _, mode := range []func(*order){noPassthrough, func(*order) {}} {
		d := mountFakes(t, mode)
		d.file("f", 1, 50_000, complete)
		u := newUser(t, d)
		u.cat("f", 1, 50_000)
		d.do(order{Op: "edit", Path: []byte("f"), Seed: 2})
		u.cat("f", 2, 50_000)
	}
}

func TestManyThreadsFaultOneMapping(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	d := mountFakes(t)
	d.file("f", 1, size)
	u := newUser(t, d)
	fd := u.open("f")
	for _, random := range []bool{true, false} {
		m := u.mmap(fd, size, true, random)
		s := u.do(wish{Op: "faults", Map: m, Threads: 32, Step: 12_288})
		require.Equal(t, wanted(1, 0, size), s.Sum)
	}
	require.Equal(t, int64(size), d.state().Fetched)
}

func TestUnsupportedRequests(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.file("f", 1, 50_000)
	u := newUser(t, d)
	fd := u.open("f")
	u.fails(syscall.ENOTTY, wish{Op: "ioctl", FD: fd})
	require.Equal(t, int64(50_000), u.do(wish{Op: "hole", FD: fd}).N)
	u.fails(syscall.EOPNOTSUPP, wish{Op: "getxattr", Path: u.path("f")})
	u.do(wish{Op: "flock", FD: fd, Flags: unix.LOCK_EX | unix.LOCK_NB})
	v := newUser(t, d)
	other := v.open("f")
	v.fails(syscall.EWOULDBLOCK, wish{Op: "flock", FD: other, Flags: unix.LOCK_EX | unix.LOCK_NB})
	u.do(wish{Op: "flock", FD: fd, Flags: unix.LOCK_UN})
	v.do(wish{Op: "flock", FD: other, Flags: unix.LOCK_EX | unix.LOCK_NB})
}

func TestErrnoTable(t *testing.T) {
	t.Parallel()
	for _, e := range errnos {
		require.Equal(t, e.errno, syscall.Errno(toStatus(wrapped{e.err})), e.err)
		require.NotEqual(t, syscall.ENOSYS, e.errno)
	}
	require.Equal(t, syscall.EIO, syscall.Errno(toStatus(wrapped{syscall.ENOSYS})))
	require.Equal(t, syscall.EIO, syscall.Errno(toStatus(syscall.ECONNREFUSED)))
	require.Equal(t, syscall.ESTALE, syscall.Errno(byNode(wrapped{meta.ErrNotFound})))
	require.Equal(t, syscall.EIO, syscall.Errno(byNode(wrapped{chunk.ErrStalled})))
}

type wrapped struct{ err error }

func (w wrapped) Error() string { return strings.ToUpper(w.err.Error()) }
func (w wrapped) Unwrap() error { return w.err }
