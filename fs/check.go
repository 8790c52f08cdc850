package fs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const fuseDevice = "/dev/fuse"

// probeTimeout bounds the look at a mountpoint whose daemon may hang.
const probeTimeout = 5 * time.Second

// CheckMountpoint reports why there can be no mount on mountpoint: something is
// mounted there that lives, or it would overlap with one of the cache directories,
// and either inside the other makes the daemon wait for itself. Paths that do not
// exist yet are resolved as far as they do.
func CheckMountpoint(mountpoint string, cacheDirs []string) error {
	point, err := resolve(mountpoint)
	if err != nil {
		return fmt.Errorf("mountpoint %s: %w", mountpoint, err)
	}
	for _, dir := range cacheDirs {
		cache, err := resolve(dir)
		if err != nil {
			return fmt.Errorf("cache directory %s: %w", dir, err)
		}
		switch {
		case inside(cache, point):
			return fmt.Errorf("cache directory %s lies in the mountpoint %s", dir, mountpoint)
		case inside(point, cache):
			return fmt.Errorf("mountpoint %s lies in the cache directory %s", mountpoint, dir)
		}
	}
	_, err = deadMount(point)
	return err
}

// inside reports whether path is dir or below it; both are resolved.
func inside(path, dir string) bool {
	if dir == "/" {
		return true
	}
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// resolve returns the absolute path without symbolic links. What does not
// exist, or is a dead mount, is kept as it is below what does.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rest := ""
	for {
		real, err := filepath.EvalSymlinks(abs)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTCONN) {
			return "", err
		}
		if abs == "/" {
			return filepath.Join(abs, rest), nil
		}
		rest = filepath.Join(filepath.Base(abs), rest)
		abs = filepath.Dir(abs)
	}
}

// prepareMountpoint returns the resolved mountpoint when a mount may go there.
// A dead mount of ours that a killed daemon left is detached first.
func prepareMountpoint(mountpoint string, log *slog.Logger) (string, error) {
	point, err := resolve(mountpoint)
	if err != nil {
		return "", fmt.Errorf("mountpoint %s: %w", mountpoint, err)
	}
	if err := detachDead(point, log); err != nil {
		return "", err
	}
	info, err := os.Stat(point)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("mountpoint %s does not exist", mountpoint)
	case err != nil:
		return "", fmt.Errorf("mountpoint %s: %w", mountpoint, err)
	case !info.IsDir():
		return "", fmt.Errorf("mountpoint %s is not a directory", mountpoint)
	}
	return point, nil
}

// detachDead detaches dead mounts of ours from point and refuses live ones.
func detachDead(point string, log *slog.Logger) error {
	for {
		dead, err := deadMount(point)
		if err != nil || !dead {
			return err
		}
		if err := detach(point); err != nil {
			return fmt.Errorf("detach the dead mount on %s: %w", point, err)
		}
		log.Info("detached a dead mount left by a daemon that was killed", "mountpoint", point)
	}
}

// deadMount reports whether a dead mount of ours is on point; any other is an error.
func deadMount(point string) (bool, error) {
	mounts, err := readMounts()
	if err != nil {
		return false, err
	}
	m, ok := mountAt(mounts, point)
	switch {
	case !ok || point == "/":
		return false, nil
	case !m.ours() || !dead(point):
		return false, fmt.Errorf("%s is already a mountpoint: %s (type %s)", point, m.source, m.fstype)
	}
	return true, nil
}

// dead reports whether nobody serves the mount at point any more. It asks for
// statfs, which the kernel never answers from what it remembers. A daemon that
// hangs is not dead; it is left alone after a while.
func dead(point string) bool {
	answer := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		answer <- unix.Statfs(point, &st)
	}()
	select {
	case err := <-answer:
		return errors.Is(err, syscall.ENOTCONN)
	case <-time.After(probeTimeout):
		return false
	}
}

// checkDevice reports why FUSE cannot be used here. The device is looked at,
// never opened: an open without a mount confuses some kernels.
func checkDevice() error {
	info, err := os.Stat(fuseDevice)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s does not exist: load the kernel module (modprobe fuse), or give the container the device (--device %s)", fuseDevice, fuseDevice)
	case err != nil:
		return fmt.Errorf("%s: %w", fuseDevice, err)
	case info.Mode()&os.ModeCharDevice == 0:
		return fmt.Errorf("%s is not a character device", fuseDevice)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, fuseDevice, unix.R_OK|unix.W_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("%s may not be used by this user: %w", fuseDevice, err)
	}
	return nil
}

// stackDepth returns how many stacked file systems passthrough must allow: 2
// when a cache directory lies on overlayfs (as in a container's own layer),
// else 1. A mount that allows 2 cannot be a lower layer of an overlay itself.
func stackDepth(cacheDirs []string) int {
	for _, dir := range cacheDirs {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC {
			return 2
		}
	}
	return 1
}
