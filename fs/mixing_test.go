package fs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/meta"
)

// Readers and writers of one file come and go, so that its inode is opened in
// every way in every order. No open fails and no read does; who only reads sees
// whole blocks of one writer.
func TestNaturesNeverMix(t *testing.T) {
	t.Parallel()
	const size, rounds = 64 << 10, 150
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t, mode...)
			d.file("f", 1, size)
			var all sync.WaitGroup
			failed := make(chan error, 20)
			loop := func(what string, one func(i int) error) {
				all.Go(func() {
					for i := range rounds {
						if err := one(i); err != nil {
							failed <- fmt.Errorf("%s, round %d: %w", what, i, err)
							return
						}
					}
				})
			}
			for range 2 {
				loop("read", func(int) error { return readWhole(d.at("f"), size) })
			}
			loop("map", func(int) error { return mapWhole(d.at("f"), size) })
			for w := range 2 {
				loop("write", func(i int) error { return rewrite(d.at("f"), os.O_RDWR, byte(w+1), size, i) })
			}
			loop("stat", func(int) error { _, err := os.Stat(d.at("f")); return err })
			// Under this name nobody but its renamer writes.
			require.NoError(t, rewrite(d.at("h"), os.O_RDWR|os.O_CREATE, 9, size, 0))
			loop("read what is replaced", func(int) error { return readWhole(d.at("h"), size) })
			loop("map what is replaced", func(int) error { return mapWhole(d.at("h"), size) })
			loop("replace", func(int) error {
				if err := rewrite(d.at("g"), os.O_RDWR|os.O_CREATE, 9, size, 0); err != nil {
					return err
				}
				return os.Rename(d.at("g"), d.at("h"))
			})
			all.Wait()
			close(failed)
			for err := range failed {
				t.Error(err)
			}
			require.Zero(t, d.closed().PublishesFailed)
		})
	}
}

// openMoving opens a file that others change all the time. A thread that stood still
// for so long in the middle of an open may be told that what it found is old: on a
// busy machine it tries again.
func openMoving(path string, flags int) (f *os.File, err error) {
	for {
		began := time.Now()
		f, err = os.OpenFile(path, flags, 0o644)
		if !stoodStill(err, began) {
			return f, err
		}
	}
}

// stoodStill reports whether a call that began at a time may have failed because its
// thread, or the daemon, got no processor for longer than toldLasts.
func stoodStill(err error, began time.Time) bool {
	return errors.Is(err, syscall.ESTALE) && time.Since(began) > toldLasts
}

func readWhole(path string, size int) error {
	f, err := openMoving(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err == nil && len(b) != size {
		err = fmt.Errorf("read %d bytes of %d", len(b), size)
	}
	return err
}

func mapWhole(path string, size int) (err error) {
	f, err := openMoving(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	_, err = look(m)
	return errors.Join(err, unix.Munmap(m))
}

func rewrite(path string, flags int, fill byte, size, i int) error {
	f, err := openMoving(path, flags)
	if err != nil {
		return err
	}
	b, off := bytes.Repeat([]byte{fill}, size), 0
	if i%2 == 1 {
		b, off = b[:4096], 4096*(i%(size/4096))
	}
	_, err = f.WriteAt(b, int64(off))
	return errors.Join(err, f.Close())
}

// An unmount waits for what is being published after its last close.
func TestUnmountWaitsForPublishes(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	d.do(order{Op: "gatepublish", On: true})
	// The opener has gone when its child writes.
	sh(t, d.point, "exec 5> f; (while kill -0 $$ 2> /dev/null; do sleep 0.05; done; /bin/echo late >&5) & disown; exec 5>&-")
	eventually(t, func() bool { s := d.state(); return s.Writes == 1 }, "written")
	eventually(t, func() bool { return unix.Unmount(d.point, 0) == nil }, "closed")
	time.Sleep(20 * time.Millisecond)
	s := d.state()
	require.False(t, s.Ended)
	require.NotZero(t, s.OpenFiles, "it is not published yet")
	d.do(order{Op: "gatepublish"})
	eventually(t, func() bool { return d.state().Ended }, "ended")
	d.isElsewhere("f", []byte("late\n"))
}

// A cut connection is no close.
func TestForcedUnmountPublishesNothing(t *testing.T) { // C3
	t.Parallel()
	d := mountFakes(t, writable)
	f := openFile(t, d.at("f"), os.O_CREATE|os.O_WRONLY)
	write(t, f, []byte("half"))
	d.do(order{Op: "unmount", Force: true})
	require.True(t, d.state().Ended)
	require.False(t, d.seen("f").Exists)
	_, err := f.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.ENOTCONN)
	require.Zero(t, d.state().Uses)
}

// Large writes do not pile up in memory.
func TestMemoryOfWriters(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	before := peak(t, d)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			f, err := os.Create(d.at("f" + itoa(i)))
			if err != nil {
				t.Error(err)
				return
			}
			b := contentOf(1, 4<<20)
			for range 8 {
				if _, err := f.Write(b); err != nil {
					t.Error(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s := d.closed()
	require.LessOrEqual(t, s.Writes, uint64(8*8*5), "each write of 4 MiB is five requests")
	require.Less(t, peak(t, d)-before, int64(160<<20), "bytes more in memory")
}

// peak returns the most memory a daemon has used, in bytes.
func peak(t *testing.T, d *daemon) int64 {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", itoa(d.cmd.Process.Pid), "status"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	require.True(t, ok)
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	require.NoError(t, err)
	return n << 10
}

func TestMarks(t *testing.T) {
	t.Parallel()
	s := &staged{}
	var a, b marks
	s.join()
	s.join()
	due := func(m *marks) [2]bool { x, y := s.due(m); return [2]bool{x, y} }
	require.Equal(t, [2]bool{false, false}, due(&a))
	s.bared(&a)
	require.Equal(t, [2]bool{true, true}, due(&a))
	s.wrote(&a)
	require.Equal(t, [2]bool{true, false}, due(&a))
	at := s.latest()
	s.wrote(&b) // while it is published
	s.published(at)
	require.Equal(t, [2]bool{false, false}, due(&a))
	require.Equal(t, [2]bool{true, false}, due(&b))
	s.wroteMapped()
	require.Equal(t, [2]bool{true, false}, due(&a))
	s.complained(s.latest())
	require.Equal(t, [2]bool{true, false}, due(&a), "each close tries again")
	require.Equal(t, legacyNone, s.leave(&a, false), "nobody is told twice")
	s.wrote(&b)
	require.Equal(t, legacyPublish, s.leave(&b, false))
	require.True(t, s.alone())
}

func TestTableParts(t *testing.T) {
	t.Parallel()
	tab := newTestTable()
	e := fileEntry("f", 7)
	n := tab.lookup(meta.RootDir, e)
	_, first, _, _ := tab.settle(n, way{nature: natureIncomplete, entry: e})
	require.True(t, first)
	_, _, err := tab.join(n, true)
	require.ErrorIs(t, err, errMixed)
	require.Nil(t, tab.child(meta.RootDir, "f"))
	require.True(t, tab.isWanted(n))
	tab.mu.Lock()
	require.False(t, tab.wanted(meta.RootDir, "f", time.Now().Add(2*wantLasts)))
	tab.mu.Unlock()
	m := tab.lookup(meta.RootDir, e)
	require.NotSame(t, n, m)

	now := e
	now.Object, now.Size = fileEntry("x", 7).Object, 99
	_, first, _, _ = tab.settle(m, way{nature: natureStaged, staged: &staged{write: &fakeUse{fakeFile: &fakeFile{}}}, entry: now})
	require.True(t, first)
	require.Same(t, m, tab.lookup(meta.RootDir, e), "it stands for whatever is published under its id")
	require.Equal(t, int64(99), m.entry.Size)
	other := fileEntry("f", 8)
	require.NotSame(t, m, tab.lookup(meta.RootDir, other))
	for _, w := range []way{{nature: natureIncomplete, entry: other}, {nature: natureEmpty}} {
		_, first, _, _ = tab.settle(m, w)
		require.False(t, first)
	}
	tab.leave(m, &now)
	_, first, _, _ = tab.settle(m, way{nature: natureIncomplete, entry: e})
	require.False(t, first, "chosen for what the inode stood for before")
}

func TestTableRenames(t *testing.T) {
	t.Parallel()
	tab := newTestTable()
	move := func(from, to string, e meta.Entry) *inode {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		e.Name = to
		return tab.rename(meta.Place{Dir: meta.RootDir, Name: from}, meta.Place{Dir: meta.RootDir, Name: to}, &e)
	}
	a, b := fileEntry("a", 1), fileEntry("b", 2)
	n, over := tab.lookup(meta.RootDir, a), tab.lookup(meta.RootDir, b)
	require.Nil(t, move("a", "b", a))
	require.Same(t, n, tab.child(meta.RootDir, "b"))
	require.Nil(t, tab.child(meta.RootDir, "a"))
	require.True(t, tab.removed(over))
	require.False(t, tab.removed(n))

	other := fileEntry("b", 1) // its content was changed elsewhere
	require.Same(t, n, move("b", "c", other))
	require.Nil(t, tab.child(meta.RootDir, "c"))

	pending := meta.Entry{Name: "p", Kind: meta.KindFile, Inode: 3, Size: 10}
	p := tab.lookup(meta.RootDir, pending)
	published := pending
	published.Object = fileEntry("q", 3).Object
	require.Nil(t, move("p", "q", published))
	require.Same(t, p, tab.child(meta.RootDir, "q"))
	require.Equal(t, published.Object, p.entry.Object)
	require.Nil(t, move("unknown", "q", a))
	require.True(t, tab.removed(p))
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	pid := uint32(os.Getpid())
	require.Equal(t, pid, processOf(pid))
	require.Zero(t, processOf(0))
	tid := make(chan uint32)
	go func() { tid <- uint32(unix.Gettid()) }()
	require.Equal(t, pid, processOf(<-tid))
	require.False(t, inProcess(1, pid))
	require.Equal(t, uint32(12), parseTgid([]byte("Name:\tx\nTgid:\t12\nPid:\t13\n")))
	require.Zero(t, parseTgid([]byte("Tgid:\tx\n")))

	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	ino := statOf(t, f.Name()).Ino
	require.True(t, hasOpen(pid, ino))
	cmd := exec.Command("sleep", "100")
	cmd.Stdin = f
	require.NoError(t, cmd.Start())
	require.True(t, childHasOpen(pid, ino))
	syscall.ForkLock.RLock() // or a child that another test is starting would have it
	require.NoError(t, f.Close())
	syscall.ForkLock.RUnlock()
	require.True(t, stillHeld(t.Context(), pid, ino))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.False(t, stillHeld(t.Context(), pid, ino))
}
