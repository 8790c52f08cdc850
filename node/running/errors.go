package running

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// nodeError is an error that matches ErrNoNode and says more than it.
type nodeError struct{ err error }

func (e nodeError) Error() string { return e.err.Error() }
func (e nodeError) Unwrap() error { return e.err }
func (e nodeError) Is(t error) bool {
	return t == ErrNoNode
}

func noNode(format string, args ...any) error {
	return nodeError{fmt.Errorf(format, args...)}
}

// notUnder says that a path is under no mount of ours.
func notUnder(name string, infos []Info) error {
	if len(infos) == 0 {
		return noNode("%q is not under a p2pfs mount, and no p2pfs node runs here\nstart one with: p2pfs mount [META_URL] MOUNTPOINT", name)
	}
	return noNode("%q is not under a p2pfs mount%s\ngive a path under one of these mounts", name, running(infos))
}

// orphan says that a mount has no daemon that can be found.
func orphan(name, point string) error {
	what := fmt.Sprintf("%q is under the mount at %s", name, point)
	if name == point {
		what = "the mount at " + point
	} else {
		what += ", which"
	}
	return noNode("%s has no running node that this user can find\nif it was killed, detach the mount with: p2pfs umount %s\nif it runs with another %s or as another user, name it with --node CACHE_DIR", what, point, EnvDir)
}

// notRunning says that a node has ended without withdrawing itself.
func notRunning(i Info) error {
	return noNode("the node %s is not running (pid %d has ended)", i, i.PID)
}

// running lists nodes for the end of a message.
func running(infos []Info) string {
	if len(infos) == 0 {
		return "\nno p2pfs node runs here"
	}
	var b strings.Builder
	b.WriteString("\nrunning here:")
	for _, i := range infos {
		fmt.Fprintf(&b, "\n  %s  node %s, pid %d", i.Mountpoint, i, i.PID)
		if len(i.CacheDirs) > 0 {
			fmt.Fprintf(&b, ", cache %s", i.CacheDirs[0])
		}
	}
	return b.String()
}

// mayConnect reports whether this user may use a control socket.
func mayConnect(socket string) bool {
	err := unix.Access(socket, unix.R_OK|unix.W_OK)
	return err == nil || !errors.Is(err, fs.ErrPermission)
}
