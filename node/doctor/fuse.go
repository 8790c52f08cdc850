package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	fuseDevice = "/dev/fuse"
	// mountTimeout bounds the mount that is tried: the kernel answers at once.
	mountTimeout = 10 * time.Second
)

// lookAtFUSE says whether file systems can be mounted, and tries it in an empty
// directory of its own, since only a mount tells what the kernel offers.
func lookAtFUSE() (FUSE, []Problem) {
	f := FUSE{Device: "ok", Passthrough: "unknown: nothing could be mounted"}
	f.Fusermount, _ = exec.LookPath("fusermount3")
	if p, bad := checkFUSEDevice(); bad {
		f.Device = p.What
		return f, []Problem{p}
	}
	if f.Fusermount == "" && os.Geteuid() != 0 {
		return f, []Problem{fault(NoFusermount, "", "there is no fusermount3, which users other than root need to mount", "install the package fuse3")}
	}
	kernel, err := tryMount()
	if err != nil {
		return f, []Problem{fault(NoFUSE, "", "nothing can be mounted: "+err.Error(), "give the container --cap-add SYS_ADMIN --device /dev/fuse, and on AppArmor hosts --security-opt apparmor=unconfined")}
	}
	f.Protocol = fmt.Sprintf("%d.%d", kernel.Major, kernel.Minor)
	switch {
	case kernel.Flags64()&fuse.CAP_PASSTHROUGH == 0:
		f.Passthrough = "not offered by this kernel: 6.9 or later has it"
	case os.Geteuid() != 0:
		f.Passthrough = "offered to root only"
	default:
		f.Passthrough = "offered"
	}
	return f, nil
}

func checkFUSEDevice() (Problem, bool) {
	_, err := os.Stat(fuseDevice)
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, fuseDevice, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
	}
	switch {
	case err == nil:
		return Problem{}, false
	case errors.Is(err, fs.ErrNotExist):
		return fault(NoFUSE, fuseDevice, "there is no FUSE device", "load the module (modprobe fuse), or give the container --device /dev/fuse"), true
	}
	return fault(NoFUSE, fuseDevice, fmt.Sprintf("this user may not use the FUSE device (%v)", err), "make it readable and writable for the user: chmod 666 "+fuseDevice), true
}

// tryMount mounts an empty file system for a moment and returns what the
// kernel said of itself.
func tryMount() (*fuse.InitIn, error) {
	dir, err := os.MkdirTemp("", "p2pfs-doctor")
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	server, err := fuse.NewServer(fuse.NewDefaultRawFileSystem(), dir, &fuse.MountOptions{
		FsName: "p2pfs-doctor", Name: "p2pfs-doctor", DirectMount: os.Geteuid() == 0, DirectMountFlags: syscall.MS_NOSUID | syscall.MS_NODEV,
		MaxStackDepth: 1,
	})
	if err != nil {
		return nil, err
	}
	kernel := *server.KernelSettings()
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve()
	}()
	err = server.Unmount()
	if err != nil { // another process is in it already: an indexer, say
		err = unix.Unmount(dir, unix.MNT_DETACH)
	}
	select {
	case <-served:
	case <-time.After(mountTimeout):
	}
	if err != nil {
		return nil, fmt.Errorf("unmount %s: %w", dir, err)
	}
	return &kernel, nil
}
