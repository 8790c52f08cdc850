package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// caller is who is at the other end of the control socket, as the kernel
// says (SO_PEERCRED, SO_PEERGROUPS): nothing the caller sends is believed.
type caller struct {
	credentials.CommonAuthInfo
	uid, gid uint32
	groups   []int
	pid      int32
}

// AuthType names the mechanism, for gRPC.
func (caller) AuthType() string { return "unix-peercred" }

// peerCredentials makes a gRPC server on a unix socket learn its callers.
type peerCredentials struct{}

var _ credentials.TransportCredentials = peerCredentials{}

func (peerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.New("control connection is not a unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	info := caller{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	var credErr error
	err = raw.Control(func(fd uintptr) {
		var u *unix.Ucred
		if u, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr != nil {
			return
		}
		info.uid, info.gid, info.pid = u.Uid, u.Gid, u.Pid
	})
	if err = errors.Join(err, credErr); err != nil {
		return nil, nil, fmt.Errorf("read the caller's credentials: %w", err)
	}
	info.groups = groupsOf(info.pid)
	return c, info, nil
}

func (peerCredentials) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, caller{}, nil
}
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peercred"}
}
func (p peerCredentials) Clone() credentials.TransportCredentials { return p }
func (peerCredentials) OverrideServerName(string) error           { return nil }

// callerFrom returns who made a control call.
func callerFrom(ctx context.Context) (caller, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return caller{}, errors.New("control call without a peer")
	}
	c, ok := p.AuthInfo.(caller)
	if !ok {
		return caller{}, errors.New("control call without credentials")
	}
	return c, nil
}

// do runs fn with the caller's file access rights: what the caller may not
// open, fn may not open. Only a daemon that runs as root can take on another's
// rights; one that does not has no more than its own in any case.
func (c caller) do(fn func() error) error {
	if os.Geteuid() != 0 || c.uid == 0 {
		return fn()
	}
	done := make(chan error, 1)
	go func() {
		// The thread is never unlocked: it ends with this goroutine, so
		// that no other work runs with these rights.
		runtime.LockOSThread()
		done <- c.doOnThread(fn)
	}()
	return <-done
}

// doOnThread sets the calling thread's groups and file-system ids. The raw
// calls act on one thread alone, unlike their wrappers in package syscall.
// Leaving fsuid 0 drops the capabilities that override file permissions.
func (c caller) doOnThread(fn func() error) error {
	if err := setThreadGroups(c.groups); err != nil {
		return fmt.Errorf("take on the groups of uid %d: %w", c.uid, err)
	}
	unix.RawSyscall(unix.SYS_SETFSGID, uintptr(c.gid), 0, 0)
	unix.RawSyscall(unix.SYS_SETFSUID, uintptr(c.uid), 0, 0)
	// setfsuid reports no failure; asking for an invalid id returns the
	// current one.
	if now, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0); uint32(now) != c.uid {
		return fmt.Errorf("take on the rights of uid %d: still %d", c.uid, uint32(now))
	}
	return fn()
}
