package fs

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// fakeChanges keeps what is written in temporary files. Objects it publishes are
// copies, so that a later write cannot touch them.
type fakeChanges struct {
	names   *fakeNames
	bytes   *fakeBytes
	changed func(dir meta.InodeID, name string) // the watch
	closes  atomic.Int64                        // uses that were not given back
	waiting atomic.Int64                        // opens that wait
	gated   atomic.Int64                        // publishes that wait

	opening sync.Mutex // one Change at a time

	mu     sync.Mutex
	files  map[meta.InodeID]*fakeFile
	public map[meta.Place]meta.Entry // files as other nodes see them
	fail   error                     // of every publish
	gate   chan struct{}             // publishes wait for it to close
	opens  chan struct{}             // opens for writing wait for it to close
	full   bool                      // writes fail
	made   int                       // objects published
	broken []int64                   // sizes of files whose writers were killed
}

var _ Changes = (*fakeChanges)(nil)

func newFakeChanges(names *fakeNames, bytes *fakeBytes) *fakeChanges {
	c := &fakeChanges{names: names, bytes: bytes, files: map[meta.InodeID]*fakeFile{}, public: map[meta.Place]meta.Entry{}}
	names.overlay = c.overlay
	return c
}

// overlay returns an entry as this node sees it.
func (c *fakeChanges) overlay(e meta.Entry) meta.Entry {
	if f, ok := c.peek(e.Inode); ok {
		name := e.Name
		e = f.Entry()
		e.Name = name
	}
	return e
}

func (c *fakeChanges) peek(id meta.InodeID) (*fakeFile, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.files[id]
	return f, ok
}

// tell is the event of a change, at once and once more late.
func (c *fakeChanges) tell(dir meta.InodeID, name string) {
	c.changed(dir, name)
	time.AfterFunc(3*time.Millisecond, func() { c.changed(dir, name) })
}

func (c *fakeChanges) add(dir meta.InodeID, name string, kind meta.Kind, target string, a meta.Attrs) (meta.Entry, error) {
	e := meta.Entry{
		Name: name, Kind: kind, Inode: meta.NewInodeID(), Mode: a.Mode, UID: a.UID, GID: a.GID,
		MtimeNs: a.MtimeNs, CtimeNs: a.MtimeNs, Target: target,
	}
	return e, c.names.add(dir, e)
}

func (c *fakeChanges) Mkdir(_ context.Context, dir meta.InodeID, name string, a meta.Attrs) (meta.Entry, error) {
	e, err := c.add(dir, name, meta.KindDir, "", a)
	c.tell(dir, name)
	return e, err
}

func (c *fakeChanges) Symlink(_ context.Context, dir meta.InodeID, name, target string, a meta.Attrs) (meta.Entry, error) {
	e, err := c.add(dir, name, meta.KindSymlink, target, a)
	c.tell(dir, name)
	return e, err
}

func (c *fakeChanges) Unlink(ctx context.Context, dir meta.InodeID, name string) error {
	e, err := c.names.Confirm(ctx, dir, name)
	switch {
	case err != nil:
		return err
	case e.Kind == meta.KindDir:
		return meta.ErrIsDir
	}
	c.names.remove(dir, name)
	c.lose(dir, e)
	c.tell(dir, name)
	return nil
}

// lose forgets a file that has no name any more.
func (c *fakeChanges) lose(dir meta.InodeID, e meta.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.public, meta.Place{Dir: dir, Name: e.Name})
	if f := c.files[e.Inode]; f != nil {
		f.mu.Lock()
		f.removed = true
		f.mu.Unlock()
		c.dropUnused(f)
	}
}

// dropUnused lets go of a file nobody uses and nothing has to be kept of.
// c.mu is held.
func (c *fakeChanges) dropUnused(f *fakeFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.uses == 0 && (f.removed || f.broken || !f.dirty) {
		if c.files[f.e.Inode] == f {
			delete(c.files, f.e.Inode)
		}
		f.tmp.Close()
	}
}

func (c *fakeChanges) Rmdir(ctx context.Context, dir meta.InodeID, name string) error {
	e, err := c.names.Confirm(ctx, dir, name)
	switch {
	case err != nil:
		return err
	case e.Kind != meta.KindDir:
		return meta.ErrNotDir
	case !c.names.empty(e.Inode):
		return meta.ErrNotEmpty
	}
	c.names.remove(dir, name)
	c.tell(dir, name)
	return nil
}

func (c *fakeChanges) Rename(ctx context.Context, from, to meta.Place, noReplace bool) (meta.Entry, error) {
	e, err := c.names.Confirm(ctx, from.Dir, from.Name)
	if err != nil {
		return e, err
	}
	old, err := c.names.Confirm(ctx, to.Dir, to.Name)
	switch exists := err == nil; {
	case exists && noReplace:
		return e, meta.ErrExist
	case exists && old.Kind == meta.KindDir && e.Kind != meta.KindDir:
		return e, meta.ErrIsDir
	case exists && old.Kind != meta.KindDir && e.Kind == meta.KindDir:
		return e, meta.ErrNotDir
	case exists && old.Kind == meta.KindDir && !c.names.empty(old.Inode):
		return e, meta.ErrNotEmpty
	case exists && old.Inode != e.Inode:
		c.names.remove(to.Dir, to.Name)
		c.lose(to.Dir, old)
	}
	e.Name = to.Name
	c.names.move(from, to, e)
	c.mu.Lock()
	if p, ok := c.public[from]; ok {
		delete(c.public, from)
		p.Name = to.Name
		c.public[to] = p
	}
	if f := c.files[e.Inode]; f != nil {
		f.mu.Lock()
		f.at, f.e.Name = to, to.Name
		f.mu.Unlock()
	}
	c.mu.Unlock()
	c.tell(from.Dir, from.Name)
	c.tell(to.Dir, to.Name)
	return e, nil
}

func (c *fakeChanges) SetAttr(ctx context.Context, dir meta.InodeID, e meta.Entry, set meta.AttrChange) (meta.Entry, error) {
	now, err := c.names.Confirm(ctx, dir, e.Name)
	if err != nil {
		return e, err
	}
	if now, err = set.Apply(now); err != nil {
		return e, err
	}
	c.names.put(dir, now)
	c.mu.Lock()
	if _, ok := c.public[meta.Place{Dir: dir, Name: e.Name}]; ok {
		c.public[meta.Place{Dir: dir, Name: e.Name}] = now
	}
	c.mu.Unlock()
	c.tell(dir, e.Name)
	return now, nil
}

func (c *fakeChanges) Create(_ context.Context, dir meta.InodeID, name string, a meta.Attrs, _ bool) (WriteFile, error) {
	c.awaitOpen()
	e, err := c.add(dir, name, meta.KindFile, "", a)
	if err != nil {
		return nil, err
	}
	f, err := c.open(meta.Place{Dir: dir, Name: name}, e)
	if err != nil {
		return nil, err
	}
	f.dirty, f.created = true, true
	u := f.use()
	c.found(f)
	c.tell(dir, name)
	return u, nil
}

func (c *fakeChanges) Change(ctx context.Context, dir meta.InodeID, e meta.Entry, truncate bool) (WriteFile, error) {
	c.awaitOpen()
	now, err := c.names.Confirm(ctx, dir, e.Name)
	if err != nil {
		return nil, err
	}
	c.opening.Lock()
	defer c.opening.Unlock()
	if now.Inode != e.Inode {
		return nil, meta.ErrStale
	}
	if w, ok := c.Find(dir, e); ok {
		return w, nil
	}
	f, err := c.open(meta.Place{Dir: dir, Name: e.Name}, now)
	if err != nil {
		return nil, err
	}
	if truncate {
		err = f.Resize(ctx, 0)
	} else {
		err = c.bytes.copyTo(ctx, now.Object, f.tmp)
	}
	if err != nil {
		return nil, errors.Join(err, f.tmp.Close())
	}
	u := f.use()
	c.found(f)
	return u, nil
}

// awaitOpen waits where a test wants opens to.
func (c *fakeChanges) awaitOpen() {
	c.mu.Lock()
	gate := c.opens
	c.mu.Unlock()
	if gate != nil {
		c.waiting.Add(1)
		<-gate
		c.waiting.Add(-1)
	}
}

func (c *fakeChanges) open(at meta.Place, e meta.Entry) (*fakeFile, error) {
	tmp, err := os.CreateTemp(c.bytes.dir, "staged-")
	if err != nil {
		return nil, err
	}
	return &fakeFile{c: c, tmp: tmp, e: e, at: at}, os.Remove(tmp.Name())
}

// found lets Find find a file, with all of its bytes.
func (c *fakeChanges) found(f *fakeFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files[f.e.Inode] = f
}

func (c *fakeChanges) Find(_ meta.InodeID, e meta.Entry) (WriteFile, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.files[e.Inode]
	if !ok {
		return nil, false
	}
	return f.use(), true
}

// seen returns a file as other nodes see it.
func (c *fakeChanges) seen(at meta.Place) (meta.Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.public[at]
	return e, ok
}
