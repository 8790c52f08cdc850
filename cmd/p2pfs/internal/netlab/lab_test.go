package netlab

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// transfer sends n bytes from one host to another and returns how long that took.
func transfer(t *testing.T, from, to *Host, n int) time.Duration {
	t.Helper()
	lis, err := from.Listen(t.Context())
	require.NoError(t, err)
	defer lis.Close()
	sent := make(chan error, 1)
	go func() {
		conn, err := lis.Accept()
		if err == nil {
			_, err = conn.Write(make([]byte, n))
			conn.Close()
		}
		sent <- err
	}()
	began := time.Now()
	conn, err := to.Dial(t.Context(), lis.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	got, err := io.Copy(io.Discard, conn)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.EqualValues(t, n, got)
	return time.Since(began)
}

func TestALabHasLinksOfItsRateAndLeavesNothing(t *testing.T) {
	t.Parallel()
	const rate, size = 80_000_000, 4 << 20 // 10 MB/s
	parent := t.TempDir()
	l, err := New(t.Context(), Config{Dir: parent, Rate: rate})
	require.NoError(t, err)
	defer l.Close()
	a, err := l.AddHost(t.Context(), "a")
	require.NoError(t, err)
	b, err := l.AddHost(t.Context(), "b")
	require.NoError(t, err)
	for _, way := range [][2]*Host{{a, b}, {b, a}} {
		took := transfer(t, way[0], way[1], size)
		require.Greater(t, took.Seconds(), 0.7*size*8/rate)
	}

	// A mount on a host is seen there, and nowhere else.
	dir, err := l.Path("mnt", "x")
	require.NoError(t, err)
	_, err = a.Run(t.Context(), a.Command("mount", "-t", "tmpfs", "lab", filepath.Dir(dir)))
	require.NoError(t, err)
	_, err = a.Run(t.Context(), a.Command("touch", dir))
	require.NoError(t, err)
	require.FileExists(t, a.View(dir))
	require.NoFileExists(t, b.View(dir))
	require.NoFileExists(t, dir)

	// No way out, and a failure says what was said.
	_, err = a.Run(t.Context(), a.Command("ip", "route", "get", "192.0.2.1"))
	require.ErrorContains(t, err, "unreachable")

	p, err := b.Start(b.Command("sleep", "infinity"))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Error(t, p.Err())
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoDirExists(t, filepath.Join("/proc", strconv.Itoa(p.PID())))
	require.NoError(t, l.Close())
}

func TestACommandEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l, err := New(t.Context(), Config{Dir: t.TempDir(), Rate: 1e9})
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = l.hub.Run(ctx, l.hub.Command("sleep", "infinity"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestALabRemovesWhatAKilledOneLeft(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	alive, err := newWorkdir(parent)
	require.NoError(t, err)
	defer alive.remove()
	// Made by a process that is gone: its lock is free.
	dead, err := newWorkdir(parent)
	require.NoError(t, err)
	syscall.ForkLock.RLock() // or a command that another test is starting would have it
	require.NoError(t, dead.lock.Close())
	syscall.ForkLock.RUnlock()
	starting, err := os.MkdirTemp(parent, dirPrefix) // has no lock yet
	require.NoError(t, err)
	old, err := os.MkdirTemp(parent, dirPrefix)
	require.NoError(t, err)
	require.NoError(t, exec.Command("touch", "-d", "2 hours ago", old).Run())
	foreign := filepath.Join(parent, "data")
	require.NoError(t, os.Mkdir(foreign, 0o755))

	require.NoError(t, sweep(parent))
	for dir, stays := range map[string]bool{alive.path: true, dead.path: false, starting: true, old: false, foreign: true} {
		_, err := os.Stat(dir)
		require.Equal(t, stays, err == nil, dir)
	}
}

func TestALabSaysWhatIsMissing(t *testing.T) {
	require.NoError(t, check(0))
	require.ErrorContains(t, check(1000), "needs root")
	t.Setenv("PATH", t.TempDir())
	require.ErrorContains(t, check(0), "the program ip is not here (it is in the package iproute2)")
}
