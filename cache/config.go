package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// Defaults of Config.
const (
	// DefaultFreeFraction of a root's file system is kept free, but no more
	// than DefaultFreeMax bytes.
	DefaultFreeFraction = 0.05
	DefaultFreeMax      = 50 << 30
	// DefaultSyncBytes and DefaultSyncEvery bound what a power failure
	// makes us check again, for each file.
	DefaultSyncBytes = 1 << 30
	DefaultSyncEvery = 5 * time.Second
	// DefaultOpenFiles is how many files that nobody uses stay open.
	DefaultOpenFiles = 256
	// withdrawTimeout bounds how long an eviction waits for the registry,
	// and withdrawPause how long one failure spares later ones the wait.
	withdrawTimeout = 2 * time.Second
	withdrawPause   = 10 * time.Second
	// retryAfter is how long a root with a failing disk is left alone.
	retryAfter = 10 * time.Second
	// idleTime is how long an unused file stays open: long enough for a
	// reader's pauses, short enough not to keep a file system busy.
	idleTime = 30 * time.Second
)

// Errors of this package. Callers test them with errors.Is.
var (
	// ErrInUse: another process holds the root; the message names its pid.
	ErrInUse = errors.New("cache is in use")
	// ErrLayout: a root written by a newer program, or not readable as one.
	ErrLayout = errors.New("unusable cache root")
	// ErrOtherCluster: the root belongs to another cluster.
	ErrOtherCluster = errors.New("cache belongs to another cluster")
	// ErrKept: the object is registered in place, or kept, and is not to be
	// removed.
	ErrKept = errors.New("object is kept here")
)

// Reserve is room that the cache leaves free on each root's file system. The
// zero value means the default: 5 %, at most 50 GiB.
type Reserve struct {
	Bytes    int64   // if above 0; below 0: nothing is kept free
	Fraction float64 // of the file system, if above 0 and Bytes is 0
}

// of returns the reserve in bytes on a file system of that many bytes.
func (r Reserve) of(total int64) int64 {
	switch {
	case r.Bytes > 0:
		return r.Bytes
	case r.Bytes < 0:
		return 0
	case r.Fraction > 0:
		return int64(r.Fraction * float64(total))
	}
	return min(int64(DefaultFreeFraction*float64(total)), DefaultFreeMax)
}

// Config says where the bytes lie and whom to tell. The callbacks may be nil,
// must be safe for concurrent use, and must not put into the cache: an
// eviction may be waiting for them.
type Config struct {
	Roots     []string // at least one; made if absent
	Size      int64    // budget of fetched, kept and staged bytes over all roots; 0: no limit
	FreeSpace Reserve  // kept free on every root's file system

	// Withdraw takes back our provider record of a set. It is called before
	// the bytes of the set's last object here go.
	Withdraw func(ctx context.Context, set chunk.SetID) error
	// Withdrawn is called after Withdraw, when that object is gone, to make the
	// record say what is here now: something of the set may have come meanwhile,
	// or gone again. It may ask the cache.
	Withdrawn func(ctx context.Context, set chunk.SetID) error
	// Bound is told of every sum newly bound for a block of a registered
	// file, after it was recorded here and before the block leaves.
	Bound func(o chunk.Object, block int, sum uint32)
	// Damaged is told once when two contents were seen under one object.
	Damaged func(o chunk.Object, why string)
	// Evicted is told after an object has left to make room.
	Evicted func(o chunk.Object)
	// Short is told, again and again, that hardly any room is left, what
	// could be evicted counted as room: of what is kept something may be
	// needed no more. It does not block.
	Short func()
	// Relieve is asked before a write is refused for want of room. It returns
	// true when kept objects have gone since it was called, so that the
	// write is worth another try, and false when none will go soon, or ctx
	// ends. No lock is held; it may take objects out of the cache.
	Relieve func(ctx context.Context) bool

	Log       *slog.Logger     // nil discards
	Now       func() time.Time // nil: time.Now
	BootID    string           // "" : this machine's; tests play another boot
	SyncBytes int64            // 0: DefaultSyncBytes
	SyncEvery time.Duration    // 0: DefaultSyncEvery
	OpenFiles int              // 0: DefaultOpenFiles
}

// withDefaults returns the configuration with every blank filled in.
func (c Config) withDefaults() (Config, error) {
	if len(c.Roots) == 0 {
		return c, errors.New("open cache: no directory given")
	}
	if c.Size < 0 {
		return c, fmt.Errorf("open cache: negative size %d", c.Size)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.SyncBytes == 0 {
		c.SyncBytes = DefaultSyncBytes
	}
	if c.SyncEvery == 0 {
		c.SyncEvery = DefaultSyncEvery
	}
	if c.OpenFiles == 0 {
		c.OpenFiles = DefaultOpenFiles
	}
	if c.BootID == "" {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return c, fmt.Errorf("open cache: read the boot id: %w", err)
		}
		c.BootID = strings.TrimSpace(string(b))
	}
	return c, nil
}
