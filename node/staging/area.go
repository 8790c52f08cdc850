package staging

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// DefaultTimeout bounds what a change or a publish waits for the store.
const DefaultTimeout = 5 * time.Second

// Config says what an Area is made of.
type Config struct {
	Node    chunk.NodeID // keeper of what is published here
	Bytes   Bytes
	Catalog Catalog
	View    View
	// Open reads an object, wherever its blocks are.
	Open func(ctx context.Context, o chunk.Object) (fs.Reader, error)
	// ChunkSize of new objects, bytes; 0: chunk.DefaultChunkSize.
	ChunkSize int64
	// KeyTTL is how long the names live that are published here; 0: for ever.
	KeyTTL time.Duration
	// Private are the patterns of the names that are not published.
	Private []string
	// Timeout bounds the store's part in a change; 0: DefaultTimeout.
	Timeout time.Duration
	// Changed is told of names that come or go without the View's doing. It
	// must not wait. Nil: nobody is told.
	Changed func(dir meta.InodeID, name string)
	Log     *slog.Logger // nil discards
}

// Area is the files that are being written on this machine, and the names that
// exist only here. Safe for concurrent use.
//
// Locks, in this order: file.pub, file.name (two files': by id), file.io,
// file.reads, Area.mu, file.mu. All but the last two are held across I/O: who
// changes one file waits for who changes the same file, and nobody else does.
type Area struct {
	cfg  Config
	log  *slog.Logger
	sets *rollingSet

	publishes, failures, publishedBytes atomic.Uint64

	mu     sync.Mutex
	closed bool
	files  map[meta.InodeID]*file
	names  map[meta.InodeID]map[string]*file // by directory and the name they have here; removed ones have none
	going  map[meta.InodeID]int              // directories that are being removed
	using  map[chunk.ObjectID]bool           // objects that no name in the store stands for yet
	lost   map[uint64]*lost                  // by the id of the staged file
}

var _ fs.Changes = (*Area)(nil)

// New returns an Area and takes in what an earlier run left. It starts no
// goroutine; Run checks what was under way.
func New(cfg Config) (*Area, error) {
	if cfg.ChunkSize == 0 {
		cfg.ChunkSize = chunk.DefaultChunkSize
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Changed == nil {
		cfg.Changed = func(meta.InodeID, string) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := CheckPrivate(cfg.Private); err != nil {
		return nil, err
	}
	a := &Area{
		cfg: cfg, log: cfg.Log,
		files: map[meta.InodeID]*file{}, names: map[meta.InodeID]map[string]*file{},
		going: map[meta.InodeID]int{}, using: map[chunk.ObjectID]bool{}, lost: map[uint64]*lost{},
	}
	a.sets = &rollingSet{announce: a.announce}
	return a, a.load()
}

// Stats is what Stats returns.
type Stats struct {
	Files          int    // that are written, or not published
	Bytes          int64  // of them, on this machine
	Failed         int    // closed and not published, or left by a crash: for recover
	Publishes      uint64 // that succeeded
	Failures       uint64 // that did not
	PublishedBytes uint64
}

// Stats returns figures for people and programs.
func (a *Area) Stats() Stats {
	s := Stats{Publishes: a.publishes.Load(), Failures: a.failures.Load(), PublishedBytes: a.publishedBytes.Load()}
	a.mu.Lock()
	files := make([]*file, 0, len(a.files))
	for _, f := range a.files {
		files = append(files, f)
	}
	s.Failed = len(a.lost)
	s.Files = len(a.lost)
	for _, l := range a.lost {
		s.Bytes += l.size
	}
	a.mu.Unlock()
	for _, f := range files {
		if size, unpublished := f.pending(); unpublished {
			s.Files++
			s.Bytes += size
		}
	}
	return s
}

// Holds reports whether an object of the cache is on its way to the store: no
// name stands for it yet, and it must stay.
func (a *Area) Holds(id chunk.ObjectID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.using[id]
}

// Keeps reports whether the provider record of a set must stay although
// nothing of it may be here: objects are being published into it.
func (a *Area) Keeps(set chunk.SetID) bool { return a.sets.uses(set) }

// Close notes what is still open, so that it can be recovered, and lets go of
// the files. No call may be under way or come after.
func (a *Area) Close() error {
	a.mu.Lock()
	a.closed = true
	files := make([]*file, 0, len(a.files))
	for _, f := range a.files {
		files = append(files, f)
	}
	clear(a.files)
	clear(a.names)
	a.mu.Unlock()
	var errs []error
	for _, f := range files {
		errs = append(errs, f.part())
	}
	return errors.Join(errs...)
}
