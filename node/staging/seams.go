package staging

import (
	"context"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// Bytes keeps staged files on this machine; CacheBytes makes one of the cache.
// Safe for concurrent use.
type Bytes interface {
	// Stage begins a staged file under an id that no other has: empty, or a
	// private copy of base. It will be published in blocks of unit bytes, or a multiple.
	Stage(ctx context.Context, id uint64, unit int64, base *cache.Base) (Draft, error)
	// Reopen returns a staged file of an earlier run, or one that was closed.
	// read reads the object it began as a copy of.
	Reopen(id uint64, unit int64, read cache.BaseRead) (Draft, error)
	// Note replaces the note of a staged file that is not open, published or
	// not, in one step.
	Note(id uint64, note []byte, durable bool) error
	// Discard removes a staged file that is not open; of one that was
	// published only the note.
	Discard(id uint64) error
	// Staged returns all that there are.
	Staged() ([]cache.StagedInfo, error)
	// Drop gives up an object that was sealed and never published.
	Drop(ctx context.Context, id chunk.ObjectID) error
	// Sealed returns what Publish returned, of an object that is here.
	Sealed(ctx context.Context, o chunk.Object) (cache.Sealed, error)
}

// Draft is the bytes of one staged file; *cache.Staged is one. Reads and writes
// may overlap.
type Draft interface {
	Read(ctx context.Context, off, n int64) (chunk.Data, error)
	WriteAt(ctx context.Context, p []byte, off int64) error
	Append(ctx context.Context, p []byte) (off int64, err error)
	Truncate(ctx context.Context, size int64) error
	Allocate(ctx context.Context, off, n int64, mode uint32) error
	Seek(ctx context.Context, off int64, whence int) (int64, error)
	Size() int64
	Sync(ctx context.Context) error
	// SetNote replaces the record beside the bytes in one step.
	SetNote(note []byte, durable bool) error
	// Publish makes the bytes an object that is kept here. The draft then only
	// reads, and its note stays.
	Publish(ctx context.Context, o chunk.Object) (cache.Sealed, error)
	// Discard removes the bytes and the note; after Publish only the note.
	Discard() error
	Close() error
}

// Catalog is the rules of names in the store; *meta.Catalog is one.
type Catalog interface {
	Dir(ctx context.Context, dir meta.InodeID) (meta.DirInfo, error)
	Lookup(ctx context.Context, dir meta.InodeID, name string) (meta.Entry, error)
	Mkdir(ctx context.Context, dir meta.InodeID, name string, a meta.Attrs) (meta.Entry, error)
	Link(ctx context.Context, dir meta.InodeID, e meta.Entry) (meta.Entry, error)
	Unlink(ctx context.Context, dir meta.InodeID, name string, ifVersion uint64) (meta.Entry, uint64, error)
	Rmdir(ctx context.Context, dir meta.InodeID, name string) (uint64, error)
	Rename(ctx context.Context, from, to meta.Place, o meta.RenameOptions) (meta.Moved, error)
	SetAttr(ctx context.Context, dir meta.InodeID, name string, id meta.InodeID, change meta.AttrChange) (meta.Entry, error)
	Publish(ctx context.Context, dir meta.InodeID, e meta.Entry, p meta.PublishIf) (meta.Entry, *meta.Entry, error)
	PutObjects(ctx context.Context, objects []meta.ObjectRecord) error
	AddReference(ctx context.Context, o chunk.Object, at meta.Place) (meta.Reference, error)
	Announce(ctx context.Context, set chunk.SetID, node chunk.NodeID, keeper, complete bool) error
}

// View is the names as this node knows them; *meta.View is one.
type View interface {
	fs.Names
	// Wrote, Removed and Renamed take in at once what this process did.
	Wrote(dir meta.InodeID, e meta.Entry)
	Removed(dir meta.InodeID, name string, at uint64)
	Renamed(from, to meta.Place, m meta.Moved)
}

var (
	_ Catalog = (*meta.Catalog)(nil)
	_ View    = (*meta.View)(nil)
)
