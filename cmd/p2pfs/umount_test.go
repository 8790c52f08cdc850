package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/node/running"
)

// fuseMount makes a real mount that nobody serves: it hangs whoever looks into
// it until die, and is dead after that. Needs root.
func fuseMount(t *testing.T, point string) (die func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	require.NoError(t, unix.Mount("p2pfs:test", point, "fuse.p2pfs", unix.MS_NOSUID|unix.MS_NODEV, opts))
	open := true
	die = func() {
		if open {
			syscall.ForkLock.RLock() // or a child that another test is starting would keep it alive
			unix.Close(fd)
			syscall.ForkLock.RUnlock()
		}
		open = false
	}
	t.Cleanup(func() {
		die()
		_ = unix.Unmount(point, unix.MNT_DETACH|unix.MNT_FORCE) // may be gone
	})
	return die
}

func isMounted(t *testing.T, point string) bool {
	t.Helper()
	mounts, err := running.Mounts()
	require.NoError(t, err)
	for _, m := range mounts {
		if m.Point == point {
			return true
		}
	}
	return false
}

func TestUmountOfADeadMount(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	fuseMount(t, p.mnt)()
	r := runProgram(t, program(t, "none", p.env, "stat", p.mnt+"/f"))
	require.Equal(t, exitNoNode, r.code)
	require.Contains(t, r.err, "p2pfs umount "+p.mnt)
	r = runProgram(t, program(t, "none", p.env, "umount", p.mnt+"/f"))
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "is inside the mount at "+p.mnt)
	r = runProgram(t, program(t, "none", p.env, "umount", p.mnt, "--json"))
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, p.mnt, field(t, decode(t, r.out), "mountpoint"))
	require.False(t, isMounted(t, p.mnt))
	r = runProgram(t, program(t, "none", p.env, "umount", p.mnt))
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "no p2pfs mount at "+p.mnt)
}

func TestADeadMountIsDetachedEvenInUse(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	die := fuseMount(t, p.mnt)
	// O_PATH does not ask the daemon.
	fd, err := unix.Open(p.mnt, unix.O_PATH|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	die()
	r := runProgram(t, program(t, "none", p.env, "umount", p.mnt))
	require.Equal(t, exitOK, r.code, r.err)
	require.False(t, isMounted(t, p.mnt))
}

func TestUmountOfAMountThatHangs(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--force", "--lazy"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			fuseMount(t, p.mnt)
			fd, err := unix.Open(p.mnt, unix.O_PATH|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			defer unix.Close(fd)
			r := runProgram(t, program(t, "none", p.env, "umount", p.mnt))
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.err, "in use by")
			require.Contains(t, r.err, fmt.Sprintf("(%d)", os.Getpid()))
			require.Contains(t, r.err, "--lazy")
			require.True(t, isMounted(t, p.mnt))
			r = runProgram(t, program(t, "none", p.env, "umount", flag, p.mnt))
			require.Equal(t, exitOK, r.code, r.err)
			require.False(t, isMounted(t, p.mnt))
		})
	}
}

// startDaemon starts a fake node in the background on a mount that exists.
func startDaemon(t *testing.T, p place, fake string) readyNode {
	t.Helper()
	r := runProgram(t, program(t, fake, p.env, p.mount("-d", "--json")...))
	require.Equal(t, exitOK, r.code, r.err)
	var ready readyNode
	require.NoError(t, json.Unmarshal([]byte(r.out), &ready))
	t.Cleanup(func() {
		syscall.Kill(ready.PID, syscall.SIGKILL)
		require.Eventually(t, func() bool { return !alive(ready.PID) }, 2*time.Minute, 10*time.Millisecond)
	})
	return ready
}

func TestUmountOfABusyMountSaysWhatToDo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	fuseMount(t, p.mnt)
	ready := startDaemon(t, p, "busy")
	r := runProgram(t, program(t, "none", p.env, "umount", p.mnt))
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "in use by cat (42)")
	require.Contains(t, r.err, "--lazy")
	require.True(t, isMounted(t, p.mnt))
	require.True(t, alive(ready.PID))
}

func TestUmountOfANodeThatIsStopped(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	fuseMount(t, p.mnt)
	ready := startDaemon(t, p, "works")
	require.NoError(t, syscall.Kill(ready.PID, syscall.SIGSTOP))
	began := time.Now()
	r := runProgram(t, program(t, "none", p.env, "umount", p.mnt))
	require.Equal(t, exitNoNode, r.code)
	require.Contains(t, r.err, fmt.Sprintf("pid %d is stopped", ready.PID))
	require.Contains(t, r.err, "--force")
	require.Less(t, time.Since(began), 10*running.DialTimeout, "it waits for a sign of life")
	r = runProgram(t, program(t, "none", p.env, "umount", "--force", p.mnt))
	require.Equal(t, exitOK, r.code, r.err)
	require.False(t, isMounted(t, p.mnt))
}

func TestUmountAfterTheDaemonWasKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	die := fuseMount(t, p.mnt)
	ready := startDaemon(t, p, "works")
	require.NoError(t, syscall.Kill(ready.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool { return !alive(ready.PID) }, 2*time.Minute, 10*time.Millisecond)
	die()
	r := runProgram(t, program(t, "none", p.env, "status", "--node", p.cache))
	require.Equal(t, exitNoNode, r.code)
	r = runProgram(t, program(t, "none", p.env, "umount", p.mnt))
	require.Equal(t, exitOK, r.code, r.err)
	require.False(t, isMounted(t, p.mnt))
	left, err := filepath.Glob(filepath.Join(p.dir, "run", "[^.]*"))
	require.NoError(t, err)
	require.Empty(t, left, "a killed daemon's files stay")
}
