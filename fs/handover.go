package fs

import (
	"context"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// Completed says that every byte of an object is on this machine now. It may
// be called from any goroutine and does not block.
func (f *FS) Completed(o chunk.Object) {
	f.completions.Add(1)
	for _, node := range f.table.complete(o.ID) {
		f.notifier.push(notice{kind: noticeComplete, node: node})
	}
}

// complete records that an object is complete and returns the nodes that were
// read while it was not.
func (t *table) complete(id chunk.ObjectID) []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	var nodes []uint64
	for n := range t.objects[id] {
		n.file.complete = true
		nodes = append(nodes, n.node)
	}
	return nodes
}

// step is what becomes of an incomplete file whose object is complete.
type step uint8

const (
	stepNone step = iota // nothing, or nothing yet: its last close asks again
	stepDrop             // not open: its pages go, and its next open passes through
	stepMove             // open and large: its name gets a new inode
)

// advance decides the step for a node and records it as taken.
func (t *table) advance(node uint64, handoverSize int64) (s step, dir meta.InodeID, e meta.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	if n == nil || n.file == nil || !n.file.complete {
		return stepNone, 0, e
	}
	switch p := n.file; {
	case p.handles == 0:
		p.complete, p.cached = false, false
		t.unlist(n)
		return stepDrop, n.dir, n.entry
	case p.nature != natureIncomplete || n.entry.Size <= handoverSize:
		return stepNone, 0, e
	case t.kids[n.dir][n.entry.Name] != n: // moved already
		return stepNone, 0, e
	}
	// The name must have lost this inode before the kernel forgets it, or the
	// next lookup would find it again.
	t.unname(n)
	return stepMove, n.dir, n.entry
}

// handOver lets the kernel read an object by itself that has become complete.
// It runs in the notifier.
func (f *FS) handOver(ctx context.Context, node uint64) {
	if !f.passthrough.on() {
		f.keepOnce(ctx, node)
		return
	}
	s, dir, e := f.table.advance(node, f.cfg.HandoverSize)
	switch s {
	case stepDrop:
		f.invalidatePages(node)
		f.handovers.Add(1)
	case stepMove:
		if parent := f.table.dirNode(dir); parent != 0 {
			f.invalidateName(parent, e.Name)
		}
		f.handovers.Add(1)
	}
}

// keepOnce is the hand-over without passthrough: the mount's pages stay, they
// are what the next reader finds, and those of the local file go once nobody
// reads. A loaded model is in memory once either way.
func (f *FS) keepOnce(ctx context.Context, node uint64) {
	n := f.table.get(node)
	if n == nil || f.table.isOpen(n) || !f.table.finish(n) {
		return
	}
	_, e := f.table.where(n)
	f.dropLocalPages(ctx, e)
}

// finish ends the wait for an object of a file that is not open; false if it
// was not waited for.
func (t *table) finish(n *inode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.file == nil || !n.file.complete {
		return false
	}
	n.file.complete = false
	t.unlist(n)
	return true
}

// recheck asks whether an object became complete between the look at it and
// the moment its inode could be told. It runs in the notifier.
func (f *FS) recheck(ctx context.Context, node uint64) {
	n := f.table.get(node)
	if n == nil {
		return
	}
	_, e := f.table.where(n)
	c, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	_, release, ok, err := f.cfg.Bytes.Local(c, e.Object)
	if err != nil || !ok {
		return
	}
	release()
	for _, node := range f.table.complete(e.Object.ID) {
		f.handOver(ctx, node)
	}
}
