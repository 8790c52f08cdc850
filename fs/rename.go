package fs

import (
	"context"
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/meta"
)

// Unlink implements fuse.RawFileSystem.
func (r *raw) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return r.fs.remove(cancel, header, name, "unlink", Changes.Unlink)
}

// Rmdir implements fuse.RawFileSystem.
func (r *raw) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return r.fs.remove(cancel, header, name, "rmdir", Changes.Rmdir)
}

// remove takes a name away. Whoever has it open goes on.
func (f *FS) remove(cancel <-chan struct{}, header *fuse.InHeader, name, op string, how func(Changes, context.Context, meta.InodeID, string) error) fuse.Status {
	parent, st := f.parentOf(header.NodeId, name)
	if st != fuse.OK {
		return st
	}
	c := f.newCall(cancel, header, defaultNamesTimeout)
	defer c.end()
	f.table.markName(parent.id, name)
	came := time.Now()
	if err := how(f.cfg.Changes, c, parent.id, name); err != nil {
		if errors.Is(err, meta.ErrNotFound) {
			err = f.absent(c, parent.id, header.Pid, came, err)
		}
		f.complain(c, op, name, err)
		return byWriter(err)
	}
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	f.table.touch(parent.id, name)
	f.table.remove(parent.id, name)
	return fuse.OK
}

// Rename implements fuse.RawFileSystem.
func (r *raw) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	f := r.fs
	from, st := f.parentOf(in.NodeId, oldName)
	if st != fuse.OK {
		return st
	}
	to, st := f.parentOf(in.Newdir, newName)
	switch {
	case st != fuse.OK:
		return st
	case in.Flags&^unix.RENAME_NOREPLACE != 0:
		return fuse.EINVAL
	}
	c := f.newLasting(cancel, &in.InHeader, publishTimeout) // it may publish
	defer c.end()
	came := time.Now()
	source, target := meta.Place{Dir: from.id, Name: oldName}, meta.Place{Dir: to.id, Name: newName}
	f.table.markName(source.Dir, source.Name)
	f.table.markName(target.Dir, target.Name)
	e, err := f.cfg.Changes.Rename(c, source, target, in.Flags&unix.RENAME_NOREPLACE != 0)
	if errors.Is(err, meta.ErrNotFound) {
		if err = f.absent(c, from.id, in.Pid, came, err); errors.Is(err, meta.ErrNotFound) {
			err = f.absent(c, to.id, in.Pid, came, err)
		}
	}
	if err != nil {
		f.complain(c, "rename", oldName, err)
		return byWriter(err)
	}
	e.Name = newName
	f.table.mu.Lock()
	moved := f.table.rename(source, target, &e)
	f.table.touch(source.Dir, source.Name)
	f.table.touch(target.Dir, target.Name)
	f.table.mu.Unlock()
	if moved != nil {
		f.notifier.push(notice{kind: noticeAttr, node: moved.node})
	}
	return fuse.OK
}

// remove records that a name stands for nothing. t.mu is held.
func (t *table) remove(dir meta.InodeID, name string) {
	if n := t.kids[dir][name]; n != nil {
		n.gone = true
		t.unname(n)
	}
}

// rename moves the inode of a name to another, as the kernel moves its own. It
// returns the inode when it does not stand for the entry that was found to have
// moved. t.mu is held.
func (t *table) rename(from, to meta.Place, e *meta.Entry) (other *inode) {
	n := t.kids[from.Dir][from.Name]
	if n == nil {
		t.remove(to.Dir, to.Name)
		return nil
	}
	if t.kids[to.Dir][to.Name] != n {
		t.remove(to.Dir, to.Name)
	}
	t.unname(n)
	stands := n.standsFor(e) || n.publishedAs(e)
	n.dir, n.entry.Name = to.Dir, to.Name
	if !stands {
		return n // the next open finds out
	}
	t.name(n)
	if !n.written() {
		t.become(n, e)
	}
	return nil
}

// publishedAs reports whether an entry is what a file that had not been
// published, and is not being written, was published as. table.mu is held.
func (n *inode) publishedAs(e *meta.Entry) bool {
	known := n.entry
	known.Object = e.Object
	return n.entry.Object.ID.IsZero() && known.SameContent(*e)
}
