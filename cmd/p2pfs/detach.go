package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/node/running"
)

// probeBound is how long a mount may take to show that somebody serves it.
const probeBound = 3 * time.Second

// umountKernel unmounts without the node's help: it is dead, hangs, or cannot
// be found.
func umountKernel(ctx context.Context, m running.Mount, force, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	switch {
	case force:
		flags |= unix.MNT_FORCE | unix.MNT_DETACH
	case lazy, isDead(m.Point):
		flags |= unix.MNT_DETACH
	}
	ctx, cancel := context.WithTimeout(ctx, umountBound)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- kernelUnmount(ctx, m.Point, flags) }()
	select {
	case err := <-result:
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("umount %s: in use by %s\n%s", m.Point, strings.Join(holders(m.Point), ", "), busyHint)
		}
		if err != nil {
			return fmt.Errorf("umount %s: %w", m.Point, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("umount %s: not done within %s; --force or --lazy takes it away", m.Point, umountBound)
	}
}

// kernelUnmount makes one system call, or has fusermount3 make it for a user
// who may not.
func kernelUnmount(ctx context.Context, point string, flags int) error {
	err := unix.Unmount(point, flags)
	if !errors.Is(err, unix.EPERM) || os.Geteuid() == 0 {
		return err
	}
	how := "-u"
	if flags&unix.MNT_DETACH != 0 {
		how = "-uz"
	}
	out, err := exec.CommandContext(ctx, "fusermount3", how, "--", point).CombinedOutput()
	if err != nil && strings.Contains(string(out), "busy") {
		return unix.EBUSY
	}
	if err != nil {
		return fmt.Errorf("fusermount3: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// isDead reports whether nobody serves a mount any more. One that does not
// answer at all is not dead: its daemon hangs.
func isDead(point string) bool {
	answer := make(chan error, 1)
	go func() {
		var st unix.Stat_t
		answer <- unix.Lstat(point, &st)
	}()
	select {
	case err := <-answer:
		return errors.Is(err, unix.ENOTCONN)
	case <-time.After(probeBound):
		return false
	}
}
