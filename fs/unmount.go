package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of an unmount.
const (
	// busyRetry is how long a busy mount is tried again, and busyTries how often
	// at least, however slow the machine is: the kernel closes files a moment
	// after their process did.
	busyRetry = 500 * time.Millisecond
	busyTries = 10
	// stuckAfter is how long an unmount may wait for reads under way before
	// they are given up.
	stuckAfter = time.Second
)

// BusyError says who keeps a mount from being unmounted.
type BusyError struct {
	Mountpoint string
	Holders    []string // "bash (1234)"; empty when none could be seen
}

// Error names the holders.
func (e *BusyError) Error() string {
	by := ""
	if len(e.Holders) > 0 {
		by = " by " + strings.Join(e.Holders, ", ")
	}
	return fmt.Sprintf("%s is in use%s", e.Mountpoint, by)
}

// Is makes errors.Is(err, syscall.EBUSY) true.
func (e *BusyError) Is(target error) bool { return target == syscall.EBUSY }

// Unmount ends the mount and waits for it, at most until ctx ends. Files in
// use make it fail with a BusyError, and the mount goes on, unless
//
//   - lazy: the mount leaves the tree at once and goes on for the files that
//     are open; Wait tells when the last one was closed;
//   - force: whoever uses the mount gets an error from now on.
//
// A mount that is gone already is no error.
func (f *FS) Unmount(ctx context.Context, force, lazy bool) error {
	select {
	case <-f.done:
		return nil
	default:
	}
	if err := f.detach(ctx, force, lazy); err != nil {
		return err
	}
	if lazy && !force {
		return nil
	}
	stuck := time.NewTimer(stuckAfter)
	defer stuck.Stop()
	for {
		select {
		case <-f.done:
			return nil
		case <-stuck.C:
			f.interruptAll()
		case <-ctx.Done():
			return fmt.Errorf("unmount %s: requests are still under way: %w", f.point, ctx.Err())
		}
	}
}

// detach takes the mount out of the tree.
func (f *FS) detach(ctx context.Context, force, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if lazy || force {
		flags |= unix.MNT_DETACH
	}
	if force {
		flags |= unix.MNT_FORCE
		f.abandonAll()
	}
	busy := false
	for until, tries := time.Now().Add(busyRetry), 1; ; tries++ {
		mine, err := f.mounted()
		if err != nil || !mine {
			return err // gone from the tree: unmounted, or detached before
		}
		err = f.umount(ctx, flags)
		busy = busy || errors.Is(err, syscall.EBUSY)
		switch {
		case err == nil:
			return nil
		case !busy:
			return fmt.Errorf("unmount %s: %w", f.point, err)
		case ctx.Err() != nil || tries >= busyTries && time.Now().After(until):
			return &BusyError{Mountpoint: f.point, Holders: holders(f.point)}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// mounted reports whether the mount is this one's and still in the tree.
func (f *FS) mounted() (bool, error) {
	mounts, err := readMounts()
	if err != nil {
		return false, err
	}
	m, ok := mountAt(mounts, f.point)
	return ok && m.ours() && (f.dev == "" || m.dev == f.dev), nil
}

// umount runs one attempt. The kernel waits in it for pages that are being
// read; when that takes too long the reads are given up.
func (f *FS) umount(ctx context.Context, flags int) error {
	result := make(chan error, 1)
	go func() { result <- umount(f.point, flags) }()
	stuck := time.NewTimer(stuckAfter)
	defer stuck.Stop()
	for {
		select {
		case err := <-result:
			return err
		case <-stuck.C:
			f.interruptAll()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// umount unmounts a path by the system call, or by fusermount3 for users who
// may not.
func umount(point string, flags int) error {
	err := unix.Unmount(point, flags)
	if err == nil || os.Geteuid() == 0 || !errors.Is(err, syscall.EPERM) {
		return err
	}
	bin, lookErr := exec.LookPath("fusermount3")
	if lookErr != nil {
		return fmt.Errorf("%w (and there is no fusermount3)", err)
	}
	option := "-u"
	if flags&unix.MNT_DETACH != 0 {
		option = "-uz"
	}
	var said bytes.Buffer
	cmd := exec.Command(bin, option, "--", point)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		if strings.Contains(said.String(), "busy") {
			return syscall.EBUSY
		}
		return fmt.Errorf("fusermount3: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// detach takes a mount out of the tree, whatever state it is in.
func detach(point string) error {
	return umount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// abandon ends a mount that never came up.
func (f *FS) abandon() {
	f.abandonAll()
	if err := umount(f.point, unix.MNT_DETACH|unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW); err != nil {
		f.log.Debug("unmount what did not come up", "error", err)
		return
	}
	<-f.done
}
