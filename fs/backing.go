package fs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The states of passthrough, as status shows them.
const (
	PassthroughOn          = "on"          // complete files are read by the kernel itself
	PassthroughOff         = "off"         // not wanted
	PassthroughUnavailable = "unavailable" // wanted, and cannot be had
)

// passthrough registers local files with the kernel, which then reads them by
// itself. Each inode has its own id: two ids of one file are two files to the
// kernel, and ids shared between inodes would have to be counted.
//
// A registration that fails concerns its file, except when nothing could ever
// succeed. A whole device is given up when its depth of stacking is the cause.
type passthrough struct {
	log    *slog.Logger
	server *fuse.Server
	opens  atomic.Uint64
	failed atomic.Uint64

	mu      sync.Mutex
	state   string
	reason  string
	devices map[uint64]error // devices whose files cannot be passed through
	said    map[string]bool  // reasons that were logged
}

// start says whether passthrough can be had on this mount.
func (p *passthrough) start(server *fuse.Server, wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
	p.devices, p.said = map[uint64]error{}, map[string]bool{}
	settings := server.KernelSettings()
	switch {
	case !wanted:
		p.state, p.reason = PassthroughOff, "not asked for"
	case settings.Flags64()&fuse.CAP_PASSTHROUGH == 0:
		p.state, p.reason = PassthroughUnavailable, "this kernel does not offer it (it needs 6.9 or later)"
	case !maySysAdmin():
		p.state, p.reason = PassthroughUnavailable, "it needs CAP_SYS_ADMIN"
	default:
		p.state = PassthroughOn
	}
}

// on reports whether files may be passed through at all.
func (p *passthrough) on() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == PassthroughOn
}

// status returns the state and, where there is one, the reason for it.
func (p *passthrough) status() (state, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reason = p.reason
	if p.state == PassthroughOn && len(p.devices) > 0 {
		for _, err := range p.devices {
			reason = err.Error()
			break
		}
	}
	return p.state, reason
}

// refused reports whether files of a device are known not to pass through.
func (p *passthrough) refused(dev uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state != PassthroughOn || p.devices[dev] != nil
}

// register makes the kernel know an open local file and returns the id. false
// means that the file has to be read through this process.
func (p *passthrough) register(f *os.File, dev uint64) (id int32, ok bool) {
	if p.refused(dev) {
		return 0, false
	}
	id, errno := p.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(f.Fd())})
	if errno == 0 {
		return id, true
	}
	p.failed.Add(1)
	p.learn(f.Name(), dev, errno)
	return 0, false
}

// learn draws the conclusion from a failed registration.
func (p *passthrough) learn(name string, dev uint64, errno syscall.Errno) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var reason string
	switch {
	case errors.Is(errno, syscall.EPERM), errors.Is(errno, syscall.ENOTTY), errors.Is(errno, syscall.EOPNOTSUPP):
		p.state = PassthroughUnavailable
		p.reason = fmt.Sprintf("the kernel refused it: %v (it needs CAP_SYS_ADMIN)", errno)
		reason = p.reason
	case errors.Is(errno, syscall.ELOOP):
		err := fmt.Errorf("the file system of %s is stacked too deep (an overlay?); files on it are read through the daemon", name)
		p.devices[dev] = err
		reason = err.Error()
	default:
		reason = fmt.Sprintf("a local file could not be registered: %v", errno)
	}
	if !p.said[reason] {
		p.said[reason] = true
		p.log.Warn("no passthrough", "reason", reason, "file", name)
	}
}

// unregister makes the kernel forget an id that no handle uses any more.
func (p *passthrough) unregister(id int32) {
	if errno := p.server.UnregisterBackingFd(id); errno != 0 && errno != syscall.EBADF {
		p.log.Debug("unregister a backing file", "id", id, "error", errno)
	}
}

// maySysAdmin reports whether this process has CAP_SYS_ADMIN. In a user
// namespace of its own it may have it and still be refused: that shows at the
// first registration.
func maySysAdmin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true
	}
	return data[unix.CAP_SYS_ADMIN/32].Effective&(1<<(unix.CAP_SYS_ADMIN%32)) != 0
}
