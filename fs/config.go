package fs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// Names is what the mount knows of names. Calls end soon after their context
// does and may overlap. Errors: meta.ErrNotFound means that the name does not
// exist; a store that cannot be asked is meta.ErrUnavailable, never
// meta.ErrNotFound.
type Names interface {
	// Lookup returns the entry of a name as far as is known here. That there
	// is none it says as surely as its consistency promises: nobody asks
	// again.
	Lookup(ctx context.Context, dir meta.InodeID, name string) (meta.Entry, error)
	// Confirm is Lookup by a linearizable read: it sees every change that
	// ended before the call. While the store is down it returns what is known.
	Confirm(ctx context.Context, dir meta.InodeID, name string) (meta.Entry, error)
	// LookupBy and ConfirmBy also return, as moved, what Standing says of a way, if
	// they ask the store: by the same read.
	LookupBy(ctx context.Context, way meta.Way, dir meta.InodeID, name string) (e meta.Entry, moved, err error)
	ConfirmBy(ctx context.Context, way meta.Way, dir meta.InodeID, name string) (e meta.Entry, moved, err error)
	// Standing reports, by a linearizable read, whether the directories of a way
	// still are where it says: meta.ErrStale if one is not.
	Standing(ctx context.Context, way meta.Way) error
	// Alive reports, by such a read, whether a directory exists under any name.
	Alive(ctx context.Context, dir meta.InodeID) (bool, error)
	// List returns the entries of a directory. The slice is shared: nobody
	// changes it.
	List(ctx context.Context, dir meta.InodeID) ([]meta.Entry, error)
}

// Bytes is where the content of objects comes from. Calls may overlap.
type Bytes interface {
	// Local returns the open file of an object whose every byte is on this
	// machine; ok is false when some are not. Object offset x lies at file
	// offset x. release gives the file back and is called once.
	Local(ctx context.Context, o chunk.Object) (f *os.File, release func(), ok bool, err error)
	// Open starts reading an object, complete here or not. It does not wait
	// for bytes.
	Open(ctx context.Context, o chunk.Object) (Reader, error)
}

// Reader reads one object on behalf of one handle. Reads may overlap.
type Reader interface {
	// Read returns the n bytes at off, or an error: never zeros in place of
	// bytes that could not be had. Fewer than n (at least one) may come in
	// one piece; the caller asks again for the rest.
	Read(ctx context.Context, off, n int64) (chunk.Data, error)
	// Close ends the interest in the object. No Read is under way.
	Close() error
}

// The values of Config.Consistency.
const (
	// ConsistencyOpen confirms every open with the store.
	ConsistencyOpen = "open"
	// ConsistencyWatch trusts what is known and the events that change it.
	ConsistencyWatch = "watch"
)

// Defaults of Config.
const (
	DefaultReadAheadKiB  = 1016 // one request of maxRequest
	DefaultMaxBackground = 96
	DefaultHandoverSize  = 64 << 20
	defaultValid         = 60 * time.Second
	defaultNamesTimeout  = 30 * time.Second
	defaultReadTimeout   = 2 * time.Minute
	maxRequest           = 254 * 4096 // bytes of one READ: with its header it still fits a pipe of 1 MiB, so that replies can be spliced
	typeName             = "p2pfs"    // shown as fuse.p2pfs
)

// Config says what to mount and how.
type Config struct {
	Mountpoint string
	Names      Names
	Bytes      Bytes

	// FSName is the source shown in /proc/mounts.
	FSName string
	// Passthrough lets the kernel read complete files by itself where it can.
	Passthrough bool
	// Consistency is ConsistencyOpen (also when empty) or ConsistencyWatch.
	Consistency string
	// AllowOther lets users other than the one who mounted in.
	AllowOther bool
	// Changes takes what is written and renamed; nil answers every change by
	// EROFS.
	Changes Changes
	// ReadOnly mounts read-only: the kernel answers every change by EROFS, and
	// Changes is not used.
	ReadOnly bool
	// XAttr offers extended attributes. The kernel then asks for one before
	// every write.
	XAttr bool
	// CacheDirs are checked not to overlap with the mountpoint, and looked at
	// for the depth of stacked file systems that passthrough must allow.
	CacheDirs []string
	// ReadAheadKiB is how far the kernel reads ahead, in KiB.
	ReadAheadKiB int
	// MaxBackground is how many read-ahead requests the kernel has under way.
	MaxBackground int
	// HandoverSize is the size in bytes above which a file that becomes
	// complete while it is open is handed over at once. A smaller one waits
	// for its last close, so that locks held through it stay seen.
	HandoverSize int64
	// Space reports the total and free bytes that statfs shows; may be nil.
	Space func() (total, free int64)
	// Log takes what a person should see; nil discards.
	Log *slog.Logger

	without uint64 // capabilities of the kernel that tests do without
}

// withDefaults returns the config with its zero values filled in, or why it
// cannot be used.
func (c Config) withDefaults() (Config, error) {
	switch c.Consistency {
	case "":
		c.Consistency = ConsistencyOpen
	case ConsistencyOpen, ConsistencyWatch:
	default:
		return c, fmt.Errorf("consistency %q: want %s or %s", c.Consistency, ConsistencyOpen, ConsistencyWatch)
	}
	if c.Names == nil || c.Bytes == nil {
		return c, fmt.Errorf("mount %s: no names or no bytes to show", c.Mountpoint)
	}
	if c.ReadOnly {
		c.Changes = nil
	}
	if c.FSName == "" {
		c.FSName = typeName
	}
	if c.ReadAheadKiB <= 0 {
		c.ReadAheadKiB = DefaultReadAheadKiB
	}
	if c.MaxBackground <= 0 {
		c.MaxBackground = DefaultMaxBackground
	}
	if c.HandoverSize <= 0 {
		c.HandoverSize = DefaultHandoverSize
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
