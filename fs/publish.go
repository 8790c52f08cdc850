package fs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Bounds of a publish. Waiting for the store has its own, shorter bound below
// the seam; this one is for the bytes.
const (
	publishTimeout = 6 * time.Hour
	// partingTimeout is for what is left when the mount has gone.
	partingTimeout = 10 * time.Second
)

// Flush implements fuse.RawFileSystem. The kernel sends it for each close of a
// descriptor, also of one that a child inherited or that was duplicated. Only
// a close by the process that opened the file publishes: others are no sign
// that the file is whole, nor is the end of a process that is killed.
func (r *raw) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	f := r.fs
	h := f.handles.get(in.Fh)
	if h == nil || h.staged == nil || !h.writes {
		return fuse.OK
	}
	opener := h.opener == 0 || in.Pid == 0 || inProcess(h.opener, in.Pid)
	if h.staged.shut(&h.marks, opener, func() bool { return killedThread(in.Pid) }) {
		return fuse.OK
	}
	due, bare := h.staged.due(&h.marks)
	if !due || !opener || f.table.removed(h.inode) {
		return fuse.OK
	}
	c := f.newLasting(cancel, &in.InHeader, publishTimeout)
	defer c.end()
	// A shell opens, duplicates and closes before anything is written, and
	// others hand a file to a child and close theirs.
	if bare && h.opener != 0 && stillHeld(c, h.opener, uint64(h.inode.id)) {
		return fuse.OK
	}
	at, err := f.publish(c, h.inode, h.staged)
	if err == nil {
		return fuse.OK
	}
	f.complainOfClose(c, "close", f.table.nameOf(h.inode), err)
	if st := byOwner(err); st != fuse.EINTR { // else nobody hears of it
		h.staged.complained(at)
		return st
	}
	return fuse.EINTR
}

// publish makes what was written an object that every node sees. It returns the
// count of changes that it covers.
func (f *FS) publish(ctx context.Context, n *inode, s *staged) (at uint64, err error) {
	at = s.latest()
	f.table.mark(n)
	if err := s.write.Publish(ctx); err != nil {
		f.publishesFailed.Add(1)
		return at, fmt.Errorf("publish: %w", err)
	}
	s.published(at)
	f.table.mark(n)
	f.table.republished(n, s)
	f.publishes.Add(1) // last: whoever sees it counted finds the new object
	return at, nil
}

// publishRest ends a handle that may write and publishes what no close has,
// unless it is broken.
func (f *FS) publishRest(ctx context.Context, h *handle) {
	killed := h.staged.mappedSince(&h.marks) && killedProcess(h.opener)
	left := h.staged.leave(&h.marks, killed)
	switch {
	case left == legacyNone || f.table.removed(h.inode):
		return
	case left == legacyBroken:
		f.breakFile(h.inode, h.staged)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if _, err := f.publish(ctx, h.inode, h.staged); err != nil && !errors.Is(err, context.Canceled) {
		f.log.Error("a file could not be published after its last close", "name", f.table.nameOf(h.inode), "error", err)
	}
}

// republished makes an inode stand for what its file was published as.
func (t *table) republished(n *inode, s *staged) {
	e := s.write.Entry()
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.written() && n.file.staged == s {
		t.become(n, &e)
	}
}
