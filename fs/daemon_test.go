package fs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/meta"
)

// order is what a test asks of the daemon.
type order struct {
	Op   string
	Path []byte // below the mountpoint
	// mount
	Mountpoint, CacheDir, Consistency string
	Passthrough, ReadOnly, Writable   bool
	XAttr                             bool
	HandoverSize                      int64
	Without                           uint64
	ReadAheadKiB                      int
	// file, dir, link
	Size, MtimeNs  int64
	Seed           uint64
	Mode, UID, GID uint32
	Target         []byte
	Dir            string // where the object's file lies; the cache by default
	Complete       bool
	Shut           bool
	AsMem, Short   bool
	// others
	On, Gap, Force, Lazy bool
	N                    int
	Within               time.Duration
}

// state is what the daemon says of itself.
type state struct {
	Stats
	Lookups, Confirms, Lists int64
	Readers, Locals, Fetched int64
	Goroutines, Files        int
	Waiting                  int     // notices not worked off
	Uses                     int64   // of files being written, not given back
	Made                     int     // objects published
	Broken                   []int64 // sizes of files whose writers were killed
	Opening                  int64   // opens for writing that wait
	Publishing               int64   // publishes that wait
	Ended                    bool
}

// fakeDaemon is a process that mounts fakes.
type fakeDaemon struct {
	names *fakeNames
	bytes *fakeBytes
	made  *fakeChanges // nil where nothing can be changed
	fs    *FS
	ids   map[string]meta.InodeID // file and directory ids by path
	next  meta.InodeID

	mounted    atomic.Pointer[FS]
	terminated chan os.Signal
}

// patience is for what ends by itself, on a machine that has much else to do.
const patience = 2 * time.Minute

func runDaemon() error {
	d := &fakeDaemon{
		names: newFakeNames(),
		bytes: &fakeBytes{objects: map[chunk.ObjectID]*fakeObject{}},
		ids:   map[string]meta.InodeID{"": meta.RootDir},
		next:  0x1000,

		terminated: make(chan os.Signal, 1),
	}
	err := loop(d.serve)
	if d.fs != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err = errors.Join(err, d.fs.Unmount(ctx, true, false))
	}
	signal.Stop(d.terminated)
	close(d.terminated)
	return errors.Join(err, leaktest.Find(goleak.IgnoreTopFunction("os/signal.loop"), goleak.IgnoreAnyFunction("os/signal.signal_recv")))
}

// obey ends the daemon at SIGTERM.
func (d *fakeDaemon) obey() {
	if _, ok := <-d.terminated; !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exit(d.fs.Unmount(ctx, false, true))
}

func (d *fakeDaemon) serve(o order) (any, error) {
	dir, name := d.split(string(o.Path))
	switch o.Op {
	case "mount":
		return nil, d.mount(o)
	case "cycle":
		return nil, cycle(o.N, o.CacheDir, func(point string) error {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			f, err := Mount(ctx, Config{Mountpoint: point, Names: d.names, Bytes: d.bytes, Passthrough: true})
			if err != nil {
				return err
			}
			return f.Unmount(ctx, false, false)
		})
	case "dir", "file", "link":
		return nil, d.put(o, dir, name)
	case "many":
		return nil, d.many(string(o.Path), o.N)
	case "remove":
		d.names.remove(dir, name)
		delete(d.ids, string(o.Path))
	case "move": // a directory, and what was made in it
		toDir, toName := d.split(string(o.Target))
		d.names.give(dir, name, toDir, toName)
		moved := map[string]meta.InodeID{}
		for path, id := range d.ids {
			if rest, ok := strings.CutPrefix(path, string(o.Path)); ok && (rest == "" || rest[0] == '/') {
				path = string(o.Target) + rest
			}
			moved[path] = id
		}
		d.ids = moved
	case "lag":
		d.names.setLag(o.On)
	case "down":
		d.names.mu.Lock()
		defer d.names.mu.Unlock()
		d.names.down = o.On
	case "changed":
		d.fs.Changed(dir, name, o.Gap)
	case "gate":
		d.object(dir, name).setGate(o.Shut)
	case "complete":
		x := d.object(dir, name)
		if err := d.bytes.finish(x); err != nil {
			return nil, err
		}
		d.fs.Completed(x.o)
	case "fail", "heal":
		x := d.object(dir, name)
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.fail = nil; o.Op == "fail" {
			x.fail = fmt.Errorf("fetch: %w", chunk.ErrNoProvider)
		}
	case "truncate":
		return nil, d.object(dir, name).local.Truncate(4096)
	case "edit":
		x := d.object(dir, name)
		x.seed = o.Seed
		return nil, d.bytes.finish(x)
	case "attr":
		e, err := d.names.Confirm(context.Background(), dir, name)
		if err != nil {
			return nil, err
		}
		e.Mode, e.MtimeNs, e.CtimeNs = o.Mode, o.MtimeNs, o.MtimeNs
		d.names.put(dir, e)
	case "seen":
		return d.seen(dir, name)
	case "fullstage", "failpublish", "gatepublish", "gateopen":
		d.made.trouble(o.Op, o.On)
	case "state":
		return d.state(), nil
	case "unmount":
		if o.Within == 0 {
			o.Within = patience
		}
		ctx, cancel := context.WithTimeout(context.Background(), o.Within)
		defer cancel()
		return nil, d.fs.Unmount(ctx, o.Force, o.Lazy)
	default:
		return nil, fmt.Errorf("unknown order %q", o.Op)
	}
	return nil, nil
}

func (d *fakeDaemon) split(path string) (meta.InodeID, string) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return meta.RootDir, path[i+1:]
	}
	if id, ok := d.ids[path[:i]]; ok {
		return id, path[i+1:]
	}
	parent, name := d.split(path[:i]) // made through the mount
	e, _ := d.names.Confirm(context.Background(), parent, name)
	return e.Inode, path[i+1:]
}

func (d *fakeDaemon) object(dir meta.InodeID, name string) *fakeObject {
	e, err := d.names.Confirm(context.Background(), dir, name)
	if err != nil {
		panic(err)
	}
	return d.bytes.get(e.Object.ID)
}

func (d *fakeDaemon) mount(o order) error {
	d.bytes.dir = o.CacheDir
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var changes Changes
	if o.Writable {
		d.made = newFakeChanges(d.names, d.bytes)
		d.made.changed = func(dir meta.InodeID, name string) {
			if f := d.mounted.Load(); f != nil {
				f.Changed(dir, name, false)
			}
		}
		changes = d.made
	}
	f, err := Mount(ctx, Config{
		Changes: changes, without: o.Without, Mountpoint: o.Mountpoint, Names: d.names, Bytes: d.bytes, FSName: "test",
		Passthrough: o.Passthrough, ReadOnly: o.ReadOnly, XAttr: o.XAttr, Consistency: o.Consistency, AllowOther: os.Geteuid() == 0,
		CacheDirs: []string{o.CacheDir}, HandoverSize: o.HandoverSize, ReadAheadKiB: o.ReadAheadKiB, Log: log,
	})
	if err != nil {
		return err
	}
	d.fs = f
	d.mounted.Store(f)
	signal.Notify(d.terminated, syscall.SIGTERM)
	go d.obey()
	return nil
}

// put makes an entry; a file that is there gets a new object.
func (d *fakeDaemon) put(o order, dir meta.InodeID, name string) error {
	id, ok := d.ids[string(o.Path)]
	if !ok {
		d.next++
		id = d.next
		d.ids[string(o.Path)] = id
	}
	e := meta.Entry{
		Name: name, Inode: id, Mode: 0o644, UID: o.UID, GID: o.GID, Size: o.Size,
		MtimeNs: o.MtimeNs, CtimeNs: o.MtimeNs,
	}
	if o.Mode != 0 {
		e.Mode = o.Mode
	}
	switch o.Op {
	case "dir":
		e.Kind = meta.KindDir
		if o.Mode == 0 {
			e.Mode = 0o755
		}
	case "link":
		e.Kind, e.Target = meta.KindSymlink, string(o.Target)
	default:
		e.Kind = meta.KindFile
		if o.Size > 0 {
			x, err := d.newObject(o)
			if err != nil {
				return err
			}
			e.Object = x.o
		}
	}
	d.names.put(dir, e)
	return nil
}

func (d *fakeDaemon) newObject(o order) (*fakeObject, error) {
	where := o.Dir
	if where == "" {
		where = d.bytes.dir
	}
	x, err := d.bytes.add(o.Seed, o.Size, where)
	if err != nil {
		return nil, err
	}
	x.asMem, x.short = o.AsMem, o.Short
	x.setGate(o.Shut)
	if o.Complete {
		return x, d.bytes.finish(x)
	}
	return x, nil
}

// many fills a directory with empty files.
func (d *fakeDaemon) many(path string, n int) error {
	dir := d.ids[path]
	for i := range n {
		d.next++
		d.names.put(dir, meta.Entry{Name: fmt.Sprintf("file-%06d", i), Kind: meta.KindFile, Inode: d.next, Mode: 0o644, MtimeNs: 1e18})
	}
	_, err := d.names.List(context.Background(), dir)
	return err
}

func (d *fakeDaemon) state() state {
	s := state{
		Lookups: d.names.lookups.Load(), Confirms: d.names.confirms.Load(), Lists: d.names.lists.Load(),
		Readers: d.bytes.readers.Load(), Locals: d.bytes.locals.Load(), Fetched: d.bytes.fetched.Load(),
		Goroutines: runtime.NumGoroutine(),
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.Files = len(fds)
	}
	if d.made != nil {
		s.Uses, s.Opening, s.Publishing = d.made.closes.Load(), d.made.waiting.Load(), d.made.gated.Load()
		d.made.mu.Lock()
		s.Made, s.Broken = d.made.made, slices.Clone(d.made.broken)
		d.made.mu.Unlock()
	}
	if d.fs != nil {
		s.Stats = d.fs.Stats()
		s.Waiting = d.fs.notifier.pending()
		select {
		case <-d.fs.Done():
			s.Ended = true
		default:
		}
	}
	return s
}

// daemon is a test's side of a fakeDaemon.
type daemon struct {
	*process
	point, cache string
}

// startDaemon starts a daemon that has not mounted yet. Whatever becomes of
// the test, nothing stays mounted.
func startDaemon(t *testing.T) *daemon {
	t.Helper()
	return startDaemonBy(t, t.TempDir(), t.TempDir(), "/proc/self/exe")
}

// startDaemonBy is startDaemon by a command that ends in this test binary.
func startDaemonBy(t *testing.T, point, cache string, command ...string) *daemon {
	t.Helper()
	d := &daemon{point: point, cache: cache}
	t.Cleanup(func() {
		for syscall.Unmount(d.point, syscall.MNT_FORCE|syscall.MNT_DETACH) == nil {
		}
	})
	d.process = spawnBy(t, "daemon", command...)
	t.Cleanup(d.finish)
	return d
}

// finish lets the daemon end by itself, which finds its races and leaks.
func (d *daemon) finish() {
	select {
	case <-d.gone: // the test ended it
		return
	default:
	}
	_ = d.in.Close()
	slow := time.AfterFunc(2*patience, func() { _ = d.cmd.Process.Kill() })
	defer slow.Stop()
	d.reap()
	if !d.cmd.ProcessState.Success() {
		d.t.Errorf("the daemon ended with %v", d.cmd.ProcessState)
	}
}

// mountFakes starts a daemon and mounts with passthrough, unless change says
// otherwise.
func mountFakes(t *testing.T, change ...func(*order)) *daemon {
	t.Helper()
	d := startDaemon(t)
	d.mount(change...)
	return d
}

func (d *daemon) mount(change ...func(*order)) {
	d.t.Helper()
	o := order{Op: "mount", Mountpoint: d.point, CacheDir: d.cache, Passthrough: true}
	for _, c := range change {
		c(&o)
	}
	d.do(o)
}

// do gives an order that must succeed.
func (d *daemon) do(o order) {
	d.t.Helper()
	require.NoError(d.t, d.try(o, nil))
}

// file makes a file.
func (d *daemon) file(path string, seed uint64, size int64, change ...func(*order)) {
	d.t.Helper()
	o := order{Op: "file", Path: []byte(path), Seed: seed, Size: size, MtimeNs: 1e18}
	for _, c := range change {
		c(&o)
	}
	d.do(o)
}

// on gives an order about a path.
func (d *daemon) on(op, path string) {
	d.t.Helper()
	d.do(order{Op: op, Path: []byte(path)})
}

func (d *daemon) state() state {
	d.t.Helper()
	var s state
	require.NoError(d.t, d.try(order{Op: "state"}, &s))
	return s
}

func writable(o *order)               { o.Writable = true }
func withXAttrs(o *order)             { o.XAttr = true }
func complete(o *order)               { o.Complete = true }
func shut(o *order)                   { o.Shut = true }
func noPassthrough(o *order)          { o.Passthrough = false }
func watching(o *order)               { o.Consistency = ConsistencyWatch }
func handoverAt(n int64) func(*order) { return func(o *order) { o.HandoverSize = n } }
