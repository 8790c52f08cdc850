package staging

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
)

// CacheBytes keeps staged files in a cache.
type CacheBytes struct{ Cache *cache.Cache }

var (
	_ Bytes = CacheBytes{}
	_ Draft = (*cache.Staged)(nil)
)

// Stage implements Bytes.
func (b CacheBytes) Stage(ctx context.Context, id uint64, unit int64, base *cache.Base) (Draft, error) {
	s, err := b.Cache.Stage(ctx, id, unit, base)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Reopen implements Bytes.
func (b CacheBytes) Reopen(id uint64, unit int64, read cache.BaseRead) (Draft, error) {
	s, err := b.Cache.OpenStaged(id, unit, read)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Note implements Bytes.
func (b CacheBytes) Note(id uint64, note []byte, durable bool) error {
	return b.Cache.NoteStaged(id, note, durable)
}

// Discard implements Bytes.
func (b CacheBytes) Discard(id uint64) error { return b.Cache.DiscardStaged(id) }

// Staged implements Bytes.
func (b CacheBytes) Staged() ([]cache.StagedInfo, error) { return b.Cache.StagedFiles() }

// Drop implements Bytes. An object that is gone already is no error.
func (b CacheBytes) Drop(ctx context.Context, id chunk.ObjectID) error {
	if err := b.Cache.Keep(ctx, id, false); err != nil {
		if errors.Is(err, chunk.ErrNotHeld) {
			return nil
		}
		return err
	}
	_, err := b.Cache.Drop(ctx, id)
	return err
}

// Sealed implements Bytes. Which blocks are zeros is not told: those who fetch
// them find out.
func (b CacheBytes) Sealed(_ context.Context, o chunk.Object) (cache.Sealed, error) {
	info, held, ok := b.Cache.Peek(o.ID)
	if !ok || !info.Complete {
		return cache.Sealed{}, fmt.Errorf("object %s: %w", o.ID.Short(), chunk.ErrNotHeld)
	}
	s := cache.Sealed{Object: o, Sums: make([]uint32, o.Blocks())}
	for i := range s.Sums {
		if s.Sums[i], ok = held.Sum(i); !ok {
			return cache.Sealed{}, fmt.Errorf("block %d of object %s: %w", i, o.ID.Short(), chunk.ErrNotHeld)
		}
	}
	return s, nil
}
