package fs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/meta"
)

// noticeTimeout bounds the question behind one notice.
const noticeTimeout = 5 * time.Second

// noticeKind says what the notifier looks into.
type noticeKind uint8

const (
	noticeName     noticeKind = iota // a name may stand for something else
	noticeGap                        // every known name of a directory may
	noticeEntry                      // a name has lost its inode
	noticeDir                        // attributes of a directory, by its id
	noticeAttr                       // attributes of an inode
	noticePages                      // pages of an inode that is passed through
	noticeComplete                   // an incomplete file's object is complete
	noticeRecheck                    // perhaps it is
)

// notice is one thing for the notifier to look into. Equal ones that wait are
// one.
type notice struct {
	kind noticeKind
	node uint64 // noticeAttr and after
	dir  meta.InodeID
	name string
}

// notifier is the only goroutine that sends notices to the kernel. A notice may
// wait for a directory's or a page's lock, which the kernel holds while it
// waits for a handler; so no handler waits for a notice and nothing is locked
// here while one is sent.
type notifier struct {
	mu      sync.Mutex
	waiting map[notice]struct{}
	queue   []notice
	busy    bool          // the last one popped is being looked into
	wake    chan struct{} // holds one
}

func newNotifier() *notifier {
	return &notifier{waiting: map[notice]struct{}{}, wake: make(chan struct{}, 1)}
}

// push queues a notice. It does not block.
func (q *notifier) push(n notice) {
	q.mu.Lock()
	if _, ok := q.waiting[n]; ok {
		q.mu.Unlock()
		return
	}
	q.waiting[n] = struct{}{}
	q.queue = append(q.queue, n)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop returns the oldest notice.
func (q *notifier) pop() (notice, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy = len(q.queue) > 0; !q.busy {
		q.queue = nil
		return notice{}, false
	}
	n := q.queue[0]
	q.queue = q.queue[1:]
	delete(q.waiting, n)
	return n, true
}

// pending returns how many notices are not worked off.
func (q *notifier) pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.queue)
	if q.busy {
		n++
	}
	return n
}

// Changed says that a name in a directory changed elsewhere, or (gap, or an
// empty name) that any of them may have. It may be called from any goroutine
// and does not block. Names answers with the new state by then.
func (f *FS) Changed(dir meta.InodeID, name string, gap bool) {
	known, any := f.table.change(dir, name)
	if !any {
		return
	}
	switch {
	case gap || name == "":
		f.notifier.push(notice{kind: noticeGap, dir: dir})
	case known:
		f.notifier.push(notice{kind: noticeName, dir: dir, name: name})
	}
	f.notifier.push(notice{kind: noticeDir, dir: dir})
}

// change counts a change in a directory. known says that the kernel knows the
// name, any that it knows the directory at all.
func (t *table) change(dir meta.InodeID, name string) (known, any bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.dirs[dir]
	if d == nil {
		return false, false
	}
	t.heard(d, name)
	return t.kids[dir][name] != nil, true
}

// kidNames returns the names the kernel knows in a directory.
func (t *table) kidNames(dir meta.InodeID) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, len(t.kids[dir]))
	for name := range t.kids[dir] {
		names = append(names, name)
	}
	return names
}

// notify works off the queue until ctx ends.
func (f *FS) notify(ctx context.Context) {
	for {
		n, ok := f.notifier.pop()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-f.notifier.wake:
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		f.look(ctx, n)
	}
}

// look does what one notice asks for.
func (f *FS) look(ctx context.Context, n notice) {
	switch n.kind {
	case noticeName:
		f.lookAtName(ctx, n.dir, n.name)
	case noticeGap:
		for _, name := range f.table.kidNames(n.dir) {
			if ctx.Err() != nil {
				return
			}
			f.lookAtName(ctx, n.dir, name)
		}
	case noticeEntry:
		if node := f.table.dirNode(n.dir); node != 0 {
			f.invalidateName(node, n.name)
		}
	case noticeDir:
		if node := f.table.dirNode(n.dir); node != 0 {
			f.invalidateAttr(node)
		}
	case noticeAttr:
		f.invalidateAttr(n.node)
	case noticePages:
		f.invalidatePages(n.node)
	case noticeComplete:
		f.handOver(ctx, n.node)
	case noticeRecheck:
		f.recheck(ctx, n.node)
	}
}

// lookAtName makes the kernel forget a name whose meaning has changed, or only
// the attributes where just these have.
func (f *FS) lookAtName(ctx context.Context, dir meta.InodeID, name string) {
	n := f.table.child(dir, name)
	if n == nil {
		return
	}
	c, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	e, err := f.cfg.Names.Lookup(c, dir, name)
	if err == nil && f.table.still(n, &e) {
		if f.table.refresh(n, &e) {
			f.invalidateAttrOf(dir, name, n.node)
		}
		return
	}
	parent := f.table.dirNode(dir)
	switch {
	case parent == 0:
	case n.kind != meta.KindDir:
		f.invalidateName(parent, name)
	case err == nil, errors.Is(err, meta.ErrNotFound):
		f.dirLeft(c, parent, n, name)
	default:
		// It may still exist, and dropping its name would cut processes
		// inside it off from their working directory.
		f.invalidateAttr(n.node)
	}
}

// dirLeft makes the kernel forget a directory under a name that stands for it no
// more. To one that lives on elsewhere nothing may happen: there may be processes
// in it.
func (f *FS) dirLeft(ctx context.Context, parent uint64, n *inode, name string) {
	alive, err := f.cfg.Names.Alive(ctx, n.id)
	switch {
	case err != nil:
		f.invalidateAttr(n.node)
	case alive:
		f.invalidateName(parent, name)
	default:
		f.deleteDir(parent, n.node, name)
	}
}

func (f *FS) invalidateAttr(node uint64) fuse.Status {
	st := f.server.InodeNotify(node, -1, 0)
	f.noted(st, "attributes")
	return st
}

// invalidateAttrOf makes the kernel forget the attributes of what a name stands
// for. It may not know the inode yet, but be about to take the old attributes
// from the answer to a first lookup. That holds the directory's lock, and
// forgetting the name waits for it.
func (f *FS) invalidateAttrOf(dir meta.InodeID, name string, node uint64) {
	st := f.invalidateAttr(node)
	if parent := f.table.dirNode(dir); st == fuse.ENOENT && parent != 0 {
		f.invalidateName(parent, name)
		f.invalidateAttr(node)
	}
}

func (f *FS) invalidatePages(node uint64) { f.noted(f.server.InodeNotify(node, 0, 0), "pages") }

func (f *FS) invalidateName(parent uint64, name string) {
	f.noted(f.server.EntryNotify(parent, name), "name")
}

// deleteDir tells that a directory is gone. Where the kernel cannot delete it,
// its attributes go, and the next use finds out.
func (f *FS) deleteDir(parent, node uint64, name string) {
	st := f.server.DeleteNotify(parent, node, name)
	f.noted(st, "directory")
	if st != fuse.OK {
		f.invalidateAttr(node)
	}
}

// noted counts a notice. The kernel knowing nothing of what it is told about is
// as good as having forgotten it.
func (f *FS) noted(st fuse.Status, what string) {
	f.notices.Add(1)
	if st != fuse.OK && st != fuse.ENOENT {
		f.log.Debug("notice to the kernel", "about", what, "status", st)
	}
}
