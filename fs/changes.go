package fs

import (
	"context"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// Changes is where whatever changes the mount goes: names to the store, bytes
// to files on this machine until they are published. Names knows of a change as
// soon as the call returns, the names of files that are not published yet
// included. Calls may overlap. Errors are those of meta and chunk, and the
// operating system's for the local disk.
type Changes interface {
	Mkdir(ctx context.Context, dir meta.InodeID, name string, a meta.Attrs) (meta.Entry, error)
	Symlink(ctx context.Context, dir meta.InodeID, name, target string, a meta.Attrs) (meta.Entry, error)
	// Unlink removes a file or a symlink. meta.ErrIsDir.
	Unlink(ctx context.Context, dir meta.InodeID, name string) error
	// Rmdir removes an empty directory. meta.ErrNotDir, meta.ErrNotEmpty.
	Rmdir(ctx context.Context, dir meta.InodeID, name string) error
	// Rename gives what is at one place the other name, over a file, a symlink
	// or an empty directory that has it, unless noReplace: meta.ErrExist. It
	// returns the entry under its new name.
	Rename(ctx context.Context, from, to meta.Place, noReplace bool) (meta.Entry, error)
	// SetAttr changes the attributes of a name that stands for e. The file of a
	// writer (Find) is told by its own SetAttr.
	SetAttr(ctx context.Context, dir meta.InodeID, e meta.Entry, set meta.AttrChange) (meta.Entry, error)

	// Create makes a file under a name that Names does not know and opens it
	// for writing. It is local until it is published. exclusive: the publish
	// fails with meta.ErrExist if another node has published the name since.
	Create(ctx context.Context, dir meta.InodeID, name string, a meta.Attrs, exclusive bool) (WriteFile, error)
	// Change opens a published file for writing: its content is that of e, or
	// empty if truncate.
	Change(ctx context.Context, dir meta.InodeID, e meta.Entry, truncate bool) (WriteFile, error)
	// Find returns the file of an entry's file id that is being written or not
	// published yet, unless the entry shows it to be outdated. Every open of
	// that id, to read or to write, goes to it.
	Find(dir meta.InodeID, e meta.Entry) (WriteFile, bool)
}

// WriteFile is one file that is being written on this machine, shared by all
// handles of its inode. Safe for concurrent use. Every WriteFile that Create,
// Change or Find returned is given back with exactly one Close.
type WriteFile interface {
	// Entry returns the file's name and attributes as of now: its size and
	// times are those of what has been written. After a publish its Object is
	// the one that was published; with changes since, the zero Object.
	Entry() meta.Entry
	// Read returns n bytes at off, or fewer (at least one): as Reader. off+n
	// is not beyond the size.
	Read(ctx context.Context, off, n int64) (chunk.Data, error)
	// Write writes all of b at off, or at the end if appending. ENOSPC.
	Write(ctx context.Context, b []byte, off int64, appending bool) error
	// Resize sets the size; what is added is zeros.
	Resize(ctx context.Context, size int64) error
	// Allocate is fallocate(2); mode as there. EOPNOTSUPP.
	Allocate(ctx context.Context, off, n int64, mode uint32) error
	// Seek is lseek(2) for SEEK_DATA and SEEK_HOLE. ENXIO.
	Seek(ctx context.Context, off int64, whence uint32) (int64, error)
	SetAttr(ctx context.Context, set meta.AttrChange) (meta.Entry, error)
	// Sync makes what was written durable here.
	Sync(ctx context.Context) error
	// Publish makes the file as it is now an object that every node sees. It
	// does nothing if nothing changed since the last time, if the name is
	// private, or if the file was removed here. Of a broken file it is
	// meta.ErrStale.
	Publish(ctx context.Context) error
	// Break is called when nobody has the file open for writing any more and
	// who wrote it was killed. The file gives its name back to what is
	// published under it, if anything, and goes on without one for those who
	// read it; the last Close leaves what was written to be recovered. It
	// reports whether it did: not if nothing changed since the last publish,
	// if the name is private, or if the file was removed here.
	Break() bool
	// Outdated reports whether Names or Find were asked about the file since
	// another node published it, while nothing was unpublished here: no open
	// goes to it any more. Who has it open goes on, and its Publish puts what
	// is written all the same over what is published. It does not block.
	Outdated() bool
	// Close ends one use. The last one lets the file go: what is published is
	// an object like any other, what could not be published stays to be
	// recovered. It publishes nothing.
	Close()
}
