package fs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// wish is what a test asks of a reading process.
type wish struct {
	Op      string
	Path    []byte
	FD, Map int
	Flags   int
	Off, N  int64
	Shared  bool
	Random  bool
	Threads int
	Step    int64
}

// sight is what a reading process saw.
type sight struct {
	FD, Map int
	N       int64
	Sum     string
	Names   [][]byte
	Inos    []uint64
	Stat    unix.Stat_t
	Target  []byte
	Pages   uint64
}

// readerProcess uses a mount on behalf of a test.
type readerProcess struct {
	maps map[int][]byte
	next int
	fds  []int // opened and perhaps closed since
}

func runReader() error {
	r := &readerProcess{maps: map[int][]byte{}}
	return loop(r.serve)
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func (r *readerProcess) serve(w wish) (any, error) {
	path := string(w.Path)
	var s sight
	var err error
	switch w.Op {
	case "open":
		s.FD, err = unix.Open(path, w.Flags|unix.O_CLOEXEC, 0o644)
		r.fds = append(r.fds, s.FD)
	case "close":
		err = unix.Close(w.FD)
	case "closeall":
		for _, fd := range r.fds {
			_ = unix.Close(fd) // many are closed already
		}
		r.fds = nil
	case "pread":
		s.N, s.Sum, err = pread(w.FD, w.Off, w.N)
	case "mmap":
		s.Map, err = r.mmap(w)
	case "munmap":
		err = unix.Munmap(r.maps[w.Map])
		delete(r.maps, w.Map)
	case "look":
		s.Sum, err = look(r.maps[w.Map][w.Off : w.Off+w.N])
	case "faults":
		s.Sum, err = faults(r.maps[w.Map], w.Threads, w.Step)
	case "storm":
		s, err = storm(true, func() (int64, string, error) { return pread(w.FD, w.Off, w.N) })
	case "stormfault":
		s, err = storm(false, func() (int64, string, error) {
			h, err := look(r.maps[w.Map][w.Off : w.Off+w.N])
			return w.N, h, err
		})
	case "ioctl":
		_, err = unix.IoctlGetWinsize(w.FD, unix.TIOCGWINSZ)
	case "hole":
		s.N, err = unix.Seek(w.FD, 0, unix.SEEK_HOLE)
	case "getxattr":
		_, err = unix.Getxattr(path, "user.x", nil)
	case "flock":
		err = unix.Flock(w.FD, w.Flags)
	case "stat":
		err = unix.Lstat(path, &s.Stat)
	case "fstat":
		err = unix.Fstat(w.FD, &s.Stat)
	case "readlink":
		buf := make([]byte, 1<<13)
		var n int
		n, err = unix.Readlink(path, buf)
		s.Target = buf[:max(n, 0)]
	case "list":
		s.Names, s.Inos, err = list(path)
	case "pages":
		s.Pages, err = pages(w.FD)
	case "filepages":
		s.Pages, err = filePages(path)
	case "cat":
		if s.FD, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			s.N, s.Sum, err = pread(s.FD, 0, w.N)
			err = errors.Join(err, unix.Close(s.FD))
		}
	case "chdir":
		err = unix.Chdir(path)
	case "getcwd":
		var wd string
		wd, err = syscall.Getwd()
		s.Target = []byte(wd)
	default:
		err = fmt.Errorf("unknown wish %q", w.Op)
	}
	return s, err
}

// pread reads n bytes at off, on pages of its own so that O_DIRECT works.
func pread(fd int, off, n int64) (int64, string, error) {
	room := (n + 2*4096 - 1) &^ 4095
	buf, err := unix.Mmap(-1, 0, int(room), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, "", err
	}
	defer unix.Munmap(buf)
	got := int64(0)
	for got < n {
		m, err := unix.Pread(fd, buf[got:n], off+got)
		if err != nil {
			return got, "", err
		}
		if m == 0 {
			break
		}
		got += int64(m)
	}
	return got, sum(buf[:got]), nil
}

func (r *readerProcess) mmap(w wish) (int, error) {
	how := unix.MAP_PRIVATE
	if w.Shared {
		how = unix.MAP_SHARED
	}
	b, err := unix.Mmap(w.FD, 0, int(w.N), unix.PROT_READ, how)
	if err != nil {
		return 0, err
	}
	if w.Random {
		if err := unix.Madvise(b, unix.MADV_RANDOM); err != nil {
			return 0, err
		}
	}
	r.next++
	r.maps[r.next] = b
	return r.next, nil
}

// look sums mapped memory; a fault that fails is an error instead of the end.
func look(b []byte) (s string, err error) {
	defer recoverFault(&err)()
	return sum(b), nil
}

func recoverFault(err *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			*err = fmt.Errorf("fault: %v: %w", r, syscall.EFAULT)
		}
	}
}

// faults touches a mapping from many threads, each with its own stride, and
// then sums it.
func faults(b []byte, threads int, step int64) (string, error) {
	var all sync.WaitGroup
	var bad atomic.Int64
	for i := range threads {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var err error
			func() {
				defer recoverFault(&err)()
				var x byte
				for off := int64(i) * step; off < int64(len(b)); off += int64(threads) * step {
					x ^= b[off]
				}
				runtime.KeepAlive(x)
			}()
			if err != nil {
				bad.Add(1)
			}
		})
	}
	all.Wait()
	if n := bad.Load(); n > 0 {
		return "", fmt.Errorf("%d threads faulted: %w", n, syscall.EFAULT)
	}
	return look(b)
}

// storm runs work on one thread that the kernel signals every 5 ms. Where it
// can, the garbage collector is kept busy too: it cannot stop a thread in a
// page fault.
func storm(collect bool, work func() (int64, string, error)) (s sight, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stopTimer, err := signalThread(5 * time.Millisecond)
	if err != nil {
		return s, err
	}
	defer stopTimer()
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for collect {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	s.N, s.Sum, err = work()
	close(stop)
	all.Wait()
	return s, err
}

// signalThread makes the kernel send SIGPROF to the calling thread
// periodically.
func signalThread(every time.Duration) (stop func(), err error) {
	event := struct {
		value  uint64
		signo  int32
		notify int32
		tid    int32
		pad    [11]int32
	}{signo: int32(unix.SIGPROF), notify: 4 /* SIGEV_THREAD_ID */, tid: int32(unix.Gettid())}
	var id int32
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id))); errno != 0 {
		return nil, errno
	}
	tick := unix.NsecToTimespec(every.Nanoseconds())
	spec := [2]unix.Timespec{tick, tick}
	if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
		return nil, errno
	}
	return func() { _, _, _ = unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(id), 0, 0) }, nil
}

// list reads a directory by getdents(2) in small buffers.
func list(path string) (names [][]byte, inos []uint64, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 1024)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n == 0 {
			return names, inos, err
		}
		for b := buf[:n]; len(b) > 0; {
			d := (*unix.Dirent)(unsafe.Pointer(&b[0]))
			raw := b[unsafe.Offsetof(d.Name):d.Reclen]
			end := 0
			for raw[end] != 0 {
				end++
			}
			names = append(names, append([]byte(nil), raw[:end]...))
			inos = append(inos, d.Ino)
			b = b[d.Reclen:]
		}
	}
}

// pages returns how many pages of the mount's own cache a file has.
func pages(fd int) (uint64, error) {
	var got unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{}, &got, 0)
	return got.Cache, err
}

// filePages returns how many pages of the files in a directory are cached.
func filePages(dir string) (total uint64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		n, err := pages(int(f.Fd()))
		f.Close()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, err
}

// user is a test's side of a readerProcess.
type user struct {
	*process
	d *daemon
}

// newUser starts a reading process.
func newUser(t *testing.T, d *daemon) *user {
	t.Helper()
	return &user{spawn(t, "reader"), d}
}

func (u *user) do(w wish) sight {
	u.t.Helper()
	for {
		var s sight
		began := time.Now()
		err := u.try(w, &s)
		if stoodStill(err, began) {
			continue
		}
		require.NoError(u.t, err, "%s %s", w.Op, w.Path)
		return s
	}
}

// fails asks for something that must fail with errno.
func (u *user) fails(errno syscall.Errno, w wish) {
	u.t.Helper()
	require.ErrorIs(u.t, u.try(w, nil), errno, "%s %s", w.Op, w.Path)
}

func (u *user) path(p string) []byte { return []byte(u.d.point + "/" + p) }

func (u *user) open(p string, flags ...int) int {
	u.t.Helper()
	w := wish{Op: "open", Path: u.path(p)}
	for _, f := range flags {
		w.Flags |= f
	}
	return u.do(w).FD
}

func (u *user) close(fd int) {
	u.t.Helper()
	u.do(wish{Op: "close", FD: fd})
}

// reads checks that a descriptor reads what the object of a seed has.
func (u *user) reads(fd int, seed uint64, off, n int64) {
	u.t.Helper()
	s := u.do(wish{Op: "pread", FD: fd, Off: off, N: n})
	require.Equal(u.t, n, s.N)
	require.Equal(u.t, wanted(seed, off, n), s.Sum)
}

func (u *user) mmap(fd int, size int64, shared, random bool) int {
	u.t.Helper()
	return u.do(wish{Op: "mmap", FD: fd, N: size, Shared: shared, Random: random}).Map
}

// sees checks that a mapping shows what the object of a seed has.
func (u *user) sees(m int, seed uint64, off, n int64) {
	u.t.Helper()
	require.Equal(u.t, wanted(seed, off, n), u.do(wish{Op: "look", Map: m, Off: off, N: n}).Sum)
}

// cat opens, reads whole and closes a file.
func (u *user) cat(p string, seed uint64, size int64) {
	u.t.Helper()
	fd := u.open(p)
	u.reads(fd, seed, 0, size)
	u.close(fd)
}

func wanted(seed uint64, off, n int64) string {
	buf := make([]byte, n)
	content(buf, seed, off)
	return sum(buf)
}
