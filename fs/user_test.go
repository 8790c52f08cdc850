package fs

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// publicDir returns a directory of nobody's that everybody may enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "p2pfs-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chown(dir, 65534, 65534))
	return dir
}

// leaveOthers begins a script in a mount namespace of its own: the mounts of other
// tests are not held there, or their end would wait for its end.
const leaveOthers = `
awk '$7 == "-" && $8 == "fuse.p2pfs" { print $5 }' /proc/self/mountinfo | while read -r m; do umount -l "$(printf '%b' "$m")" || true; done
`

// A user without rights mounts by fusermount3 where the device is open to all,
// as distributions have it; here in a mount namespace of its own.
func TestMountWithoutRights(t *testing.T) {
	t.Parallel()
	point, cache, dir := publicDir(t), publicDir(t), publicDir(t)
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	exe := filepath.Join(dir, "test")
	syscall.ForkLock.RLock() // what a child has open for writing that is being started cannot be executed
	err = os.WriteFile(exe, self, 0o755)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	node := filepath.Join(dir, "fuse")
	require.NoError(t, syscall.Mknod(node, syscall.S_IFCHR|0o666, 10<<8|229))
	require.NoError(t, os.Chmod(node, 0o666))
	nobody := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", exe}

	inside := append([]string{"unshare", "-m", "--propagation", "private", "sh", "-c", leaveOthers + `mount --bind "$0" /dev/fuse && exec "$@"`, node}, nobody...)
	d := startDaemonBy(t, point, cache, inside...)
	d.mount()
	require.Equal(t, PassthroughUnavailable, d.state().Passthrough)
	require.Contains(t, d.state().PassthroughReason, "CAP_SYS_ADMIN")
	d.file("f", 1, 3<<20, complete)
	d.file("g", 2, 3<<20)
	enter := append([]string{"nsenter", "-t", itoa(d.cmd.Process.Pid), "-m"}, nobody...)
	u := &user{spawnBy(t, "reader", enter...), d}
	u.cat("f", 1, 3<<20)
	u.cat("g", 2, 3<<20)
	fd := u.open("f")
	require.ErrorContains(t, d.try(order{Op: "unmount", Within: 10 * time.Second}, nil), "is in use")
	u.close(fd)
	d.do(order{Op: "unmount"})
	require.True(t, d.state().Ended)
}

func TestNoDeviceIsAClearSentence(t *testing.T) {
	t.Parallel()
	// An empty /dev, again in a namespace of its own.
	exe, err := os.Executable()
	require.NoError(t, err)
	d := startDaemonBy(t, t.TempDir(), t.TempDir(),
		"unshare", "-m", "--propagation", "private", "sh", "-c", leaveOthers+`mount -t tmpfs none /dev && exec "$@"`, "sh", exe)
	require.ErrorContains(t, mounting(d), "/dev/fuse does not exist: load the kernel module")
}

func TestMountsComeAndGoInParallel(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	d.do(order{Op: "cycle", CacheDir: d.cache, N: 40})
	mounts, err := readMounts()
	require.NoError(t, err)
	for _, m := range mounts {
		require.False(t, strings.HasPrefix(m.point, d.cache), m.point)
	}
}

// cycle mounts and unmounts n times, 8 at a time.
func cycle(n int, base string, mount func(point string) error) error {
	var all sync.WaitGroup
	failed := make(chan error, 8)
	for w := range 8 {
		all.Go(func() {
			point := filepath.Join(base, itoa(w))
			if err := os.Mkdir(point, 0o755); err != nil {
				failed <- err
				return
			}
			for range n / 8 {
				if err := mount(point); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func TestChurnLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, handoverAt(1<<20))
	d.file("small", 1, 50_000)
	d.file("large", 2, 2<<20)
	d.file("whole", 3, 2<<20, complete)
	u := newUser(t, d)
	round := func() {
		for i, name := range []string{"small", "large", "whole"} {
			u.cat(name, uint64(i+1), 50_000)
			m := u.mmap(u.open(name), 50_000, true, i%2 == 0)
			u.sees(m, uint64(i+1), 0, 50_000)
			u.do(wish{Op: "munmap", Map: m})
		}
		u.do(wish{Op: "closeall"})
		u.do(wish{Op: "list", Path: []byte(d.point)})
	}
	settled := func() state {
		eventually(t, func() bool {
			s := d.state()
			return s.OpenFiles == 0 && s.OpenDirs == 0 && s.Waiting == 0 && s.Readers == 0 && s.Locals == 0
		}, "closed")
		return d.state()
	}
	for range 5 {
		round()
	}
	before := settled()
	for i := range 100 {
		if i == 50 {
			d.on("complete", "small")
			d.on("complete", "large")
		}
		round()
	}
	settled()
	var after state
	eventually(t, func() bool { // the kernel forgets inodes when it comes to it
		after = d.state()
		return after.Inodes <= 4 && after.Goroutines <= before.Goroutines+8
	}, "forgotten")
	require.LessOrEqual(t, after.Files, before.Files+16, "pipes of replies are kept")
}
