package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// Options of a Catalog.
type Options struct {
	// Log takes what a caller cannot be told: unreadable records that a
	// listing passed over. Nil discards.
	Log *slog.Logger
	// Recorder is told the changes of names that are made here. Nil: nobody is.
	Recorder Recorder
}

// Catalog is the domain's rules, written once over any store. It holds no
// state that matters but the facts of the store it joined, and is safe for
// concurrent use.
// Its errors are those of Slots and the name errors of this package, wrapped.
type Catalog struct {
	slots     Slots // gate: what the rules use
	raw       Slots // the store itself
	gate      *gate
	recorder  Recorder
	lost      chan struct{}
	behind    behind
	made      made
	live      atomic.Bool // the store was seen to be the one it was joined as
	log       *slog.Logger
	chunkSize atomic.Int64              // the store's default, bytes
	store     atomic.Pointer[StoreInfo] // as joined; nil before
	dirMoves  chan struct{}             // holds one while a directory is moved from here
	leftovers leftovers
	timed     timed
}

// NewCatalog returns the rules over a store. The caller keeps the store and
// closes it.
func NewCatalog(slots Slots, opts Options) *Catalog {
	c := &Catalog{raw: slots, recorder: opts.Recorder, lost: make(chan struct{}, 1), log: opts.Log, dirMoves: make(chan struct{}, 1)}
	c.behind = behind{dirs: map[InodeID]uint64{}, wake: make(chan struct{}, 1)}
	c.timed = timed{at: map[InodeID]time.Time{}, wake: make(chan struct{}, 1)}
	c.gate = &gate{Slots: slots, c: c}
	c.slots = c.gate
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.chunkSize.Store(chunk.DefaultChunkSize)
	return c
}

// JoinOptions says what Join may do with a store that holds no cluster.
type JoinOptions struct {
	Create    bool  // make one
	ChunkSize int64 // its default chunk size, bytes; 0: chunk.DefaultChunkSize
}

// Join reads the store's own record, and makes it together with the root
// directory where there is none and opts allow it. ErrNotFound: no cluster is
// there and none may be made. ErrFormat: this program is too old for it.
func (c *Catalog) Join(ctx context.Context, opts JoinOptions) (StoreInfo, error) {
	info, err := c.join(ctx, opts)
	if err != nil {
		return StoreInfo{}, fmt.Errorf("join cluster: %w", err)
	}
	c.UseStore(info)
	c.live.Store(true)
	return info, nil
}

// UseStore tells the catalog what an earlier Join returned, for a start
// without the store.
func (c *Catalog) UseStore(info StoreInfo) {
	c.chunkSize.Store(info.ChunkSize)
	c.store.Store(&info)
}

func (c *Catalog) join(ctx context.Context, opts JoinOptions) (StoreInfo, error) {
	if opts.ChunkSize == 0 {
		opts.ChunkSize = chunk.DefaultChunkSize
	}
	if err := checkChunkSize(opts.ChunkSize); err != nil {
		return StoreInfo{}, err
	}
	for {
		recs, err := c.slots.Get(ctx, Key{StoreSlot, self}, Key{dirSlot(RootDir), self})
		if err != nil {
			return StoreInfo{}, err
		}
		if recs[0].Value != nil {
			info, err := UnmarshalStore(recs[0].Value)
			if err == nil && recs[1].Value == nil && !info.ReadOnly {
				err = c.makeRoot(ctx)
			}
			return info, err
		}
		if !opts.Create {
			return StoreInfo{}, fmt.Errorf("the store holds no cluster: %w", ErrNotFound)
		}
		info, err := c.makeStore(ctx, opts.ChunkSize)
		if errors.Is(err, ErrConflict) {
			continue // another node was first: join its cluster
		}
		return info, err
	}
}

func (c *Catalog) makeStore(ctx context.Context, chunkSize int64) (StoreInfo, error) {
	info := newStoreInfo(chunkSize)
	b, err := MarshalStore(info)
	if err != nil {
		return StoreInfo{}, err
	}
	_, err = c.slots.Apply(ctx, StoreSlot, []If{{Field: self, Absent: true}}, []Set{{self, b}, {epochField(info.Epoch), []byte{}}})
	if err != nil {
		return StoreInfo{}, err
	}
	return info, c.makeRoot(ctx)
}

// makeRoot makes the root directory, if it is not there.
func (c *Catalog) makeRoot(ctx context.Context) error {
	b, err := marshalDir(DirInfo{Mode: 0o755}, nil)
	if err != nil {
		return err
	}
	_, err = c.raw.Apply(ctx, dirSlot(RootDir), []If{{Field: self, Absent: true}}, []Set{{self, b}})
	if err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("make the root directory: %w", err)
	}
	return nil
}
