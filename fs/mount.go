package fs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/meta"
)

// FS is one mount. Its methods are safe for concurrent use.
type FS struct {
	cfg   Config
	log   *slog.Logger
	point string // resolved mountpoint
	dev   string // major:minor of the mount

	server      *fuse.Server
	table       table
	handles     slots[*handle]
	dirs        slots[*dirHandle]
	notifier    *notifier
	passthrough passthrough
	epoch       atomic.Pointer[epoch]
	life        atomic.Pointer[epoch] // of calls that outlive an unmount
	complaints  limiter
	forced      atomic.Bool   // abandonAll was called
	closing     atomic.Int64  // handles that the kernel has released, and that are not closed yet
	done        chan struct{} // closed when the mount is gone and all ended

	completions atomic.Uint64
	handovers   atomic.Uint64
	notices     atomic.Uint64
	reads       atomic.Uint64
	readBytes   atomic.Uint64

	writes          atomic.Uint64
	writtenBytes    atomic.Uint64
	publishes       atomic.Uint64
	publishesFailed atomic.Uint64
}

// epoch is a lifetime of calls: ending it ends those under way.
type epoch struct {
	ctx context.Context
	end context.CancelFunc
}

// raw is the kernel's side of an FS; what it does not answer is ENOSYS.
type raw struct {
	fuse.RawFileSystem
	fs *FS
}

var _ fuse.RawFileSystem = (*raw)(nil)

// String implements fuse.RawFileSystem.
func (*raw) String() string { return typeName }

// Mount mounts and returns when the kernel has answered. ctx bounds only the
// mounting. The mount ends by Unmount or by whoever unmounts it from outside;
// Wait waits for that. The goroutines it starts have ended by then.
func Mount(ctx context.Context, c Config) (*FS, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkDevice(); err != nil {
		return nil, err
	}
	if err := CheckMountpoint(c.Mountpoint, c.CacheDirs); err != nil {
		return nil, err
	}
	point, err := prepareMountpoint(c.Mountpoint, c.Log)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("mount %s: %w", point, err)
	}
	f := &FS{
		cfg: c, log: c.Log, point: point,
		notifier: newNotifier(),
		done:     make(chan struct{}),
	}
	f.table.init(rootEntry(time.Now()))
	f.passthrough.log = c.Log
	renew(&f.epoch)
	renew(&f.life)
	if f.server, err = fuse.NewServer(&raw{fuse.NewDefaultRawFileSystem(), f}, point, f.options()); err != nil {
		return nil, mountError(point, err)
	}
	f.passthrough.start(f.server, c.Passthrough)
	f.serve()
	if err := f.ready(ctx); err != nil {
		f.abandon()
		return nil, fmt.Errorf("mount %s: %w", point, err)
	}
	state, reason := f.passthrough.status()
	f.log.Info("mounted", "mountpoint", point, "passthrough", state, "reason", reason, "consistency", c.Consistency)
	return f, nil
}

// rootEntry is what stat shows of the mountpoint.
func rootEntry(now time.Time) meta.Entry {
	return meta.Entry{
		Kind: meta.KindDir, Inode: meta.RootDir, Mode: 0o755,
		UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
		MtimeNs: now.UnixNano(), CtimeNs: now.UnixNano(),
	}
}

// options returns what go-fuse is asked for. The page cache is never used for
// writing back: that and passthrough exclude each other.
func (f *FS) options() *fuse.MountOptions {
	o := &fuse.MountOptions{
		FsName:                  f.cfg.FSName,
		Name:                    typeName,
		AllowOther:              f.cfg.AllowOther,
		Options:                 []string{"default_permissions"},
		DirectMount:             os.Geteuid() == 0, // needs no fusermount3
		DirectMountFlags:        syscall.MS_NOSUID | syscall.MS_NODEV,
		MaxWrite:                maxRequest,
		MaxBackground:           f.cfg.MaxBackground,
		MaxInflightRequestBytes: 256 << 20,
		DisableXAttrs:           !f.cfg.XAttr, // the kernel asks for one at every write
		EnableSymlinkCaching:    true,
		// Not CAP_ASYNC_DIO: with it an O_DIRECT reader waits for all its
		// requests at once, in a way no signal ends, SIGKILL included.
		ExtraCapabilities: fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_ATOMIC_O_TRUNC,
		MaxStackDepth:     stackDepth(f.cfg.CacheDirs),
		Logger:            slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		PanicHandler:      f.panicked,
		DisableSplice:     !canSplice(),
	}
	if f.cfg.ReadOnly {
		o.Options = append(o.Options, "ro")
		o.DirectMountFlags |= syscall.MS_RDONLY
	}
	o.DisabledCapabilities = f.cfg.without
	if !f.cfg.Passthrough {
		o.DisabledCapabilities |= fuse.CAP_PASSTHROUGH
	}
	return o
}

// canSplice reports whether replies may be spliced: go-fuse empties its pipes
// into /dev/null, and panics where it cannot.
func canSplice() bool {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	null.Close()
	return true
}

// mountError says what a failed mount most likely needs.
func mountError(point string, err error) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("mount %s: %w (it needs root with CAP_SYS_ADMIN, or fusermount3 and permission to use %s)", point, err, fuseDevice)
	}
	return fmt.Errorf("mount %s: %w", point, err)
}

// serve starts the goroutines that live until the mount is gone.
func (f *FS) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	notified := make(chan struct{})
	go func() {
		defer close(notified)
		f.notify(ctx)
	}()
	go func() {
		defer close(f.done)
		f.server.Serve()
		cancel()
		<-notified
		f.epoch.Load().end()
		f.closeAll()
		f.life.Load().end()
	}()
}

// ready waits until the kernel has answered, and sets what is set from outside.
func (f *FS) ready(ctx context.Context) error {
	answered := make(chan error, 1)
	go func() { answered <- f.server.WaitMount() }()
	select {
	case err := <-answered:
		if err != nil {
			return fmt.Errorf("first request: %w", err)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	m, ok := mountAt(mounts, f.point)
	if !ok {
		return errors.New("it is not in the list of mounts")
	}
	f.dev = m.dev
	if err := setReadAhead(m.dev, f.cfg.ReadAheadKiB); err != nil {
		f.log.Info("the kernel's default read-ahead stays", "error", err)
	}
	return nil
}

// setReadAhead sets how far the kernel reads ahead on a mount, in KiB. Larger
// requests alone change nothing for buffered reads.
func setReadAhead(dev string, kib int) error {
	path := "/sys/class/bdi/" + dev + "/read_ahead_kb"
	if err := os.WriteFile(path, fmt.Appendln(nil, kib), 0); err != nil {
		return fmt.Errorf("set read-ahead: %w", err)
	}
	return nil
}

// panicked answers a request whose handler panicked.
func (f *FS) panicked(v any) fuse.Status {
	f.log.Error("a request failed by a programming error", "panic", v, "stack", stack())
	return fuse.EIO
}

// closeAll gives back what handles held that the kernel never released. After
// an unmount they were closed, and only the word of it got lost: what they
// wrote is published. When the connection was cut they were not.
func (f *FS) closeAll() {
	ctx, cancel := context.WithTimeout(f.life.Load().ctx, partingTimeout)
	defer cancel()
	if mounted, err := f.mounted(); mounted || err != nil || f.forced.Load() {
		cancel()
	}
	f.closing.Add(1) // first, as in Release
	handles := f.handles.takeAll()
	f.closing.Add(int64(len(handles)) - 1)
	for _, h := range handles {
		f.closeHandle(ctx, h)
		f.closing.Add(-1)
	}
	f.dirs.takeAll()
}

// renew starts a new epoch of calls and returns the old one.
func renew(p *atomic.Pointer[epoch]) (old *epoch) {
	ctx, end := context.WithCancel(context.Background())
	return p.Swap(&epoch{ctx, end})
}

// interruptAll ends the calls under way, except those that write; later ones
// are not affected.
func (f *FS) interruptAll() { renew(&f.epoch).end() }

// abandonAll also ends those that write. What is not published then stays so.
func (f *FS) abandonAll() {
	f.forced.Store(true)
	f.interruptAll()
	renew(&f.life).end()
}

// Mountpoint returns the resolved mountpoint.
func (f *FS) Mountpoint() string { return f.point }

// Wait returns when the mount is gone and everything it held was given back.
func (f *FS) Wait() { <-f.done }

// Done is closed when Wait returns.
func (f *FS) Done() <-chan struct{} { return f.done }
