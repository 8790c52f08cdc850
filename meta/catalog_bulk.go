package meta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"
)

// inFlight is how many changes a bulk call keeps under way at once.
const inFlight = 8

// LinkMany adds many names to one directory, some at a time: others see them
// come bit by bit, unless nothing links the directory yet. An error leaves
// what was added before it. ErrExist, ErrNotFound as of Link. It sets the
// versions of the entries that were added.
func (c *Catalog) LinkMany(ctx context.Context, dir InodeID, entries []Entry) error {
	return inParallel(ctx, inFlight, slices.Chunk(entries, MaxSets), func(ctx context.Context, batch []Entry) error {
		return c.linkBatch(ctx, dir, batch)
	})
}

// inParallel calls fn with each item, at most limit at once, until one fails.
func inParallel[T any](ctx context.Context, limit int, items iter.Seq[T], fn func(context.Context, T) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for item := range items {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error { return fn(gctx, item) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (c *Catalog) linkBatch(ctx context.Context, dir InodeID, batch []Entry) error {
	names := make([]string, 0, len(batch))
	sets := make([]Set, 0, len(batch))
	for _, e := range batch {
		b, err := MarshalEntry(e, nil)
		if err != nil {
			return err
		}
		names = append(names, e.Name)
		sets = append(sets, Set{e.Name, b})
	}
	if name, ok := twice(sets); ok {
		return fmt.Errorf("create %q: %w", name, ErrExist)
	}
	for {
		at, err := c.slots.Apply(ctx, dirSlot(dir), linkable(names...), sets)
		if errors.Is(err, ErrConflict) {
			if err = c.whichNotLinked(ctx, dir, names); err == nil {
				continue
			}
			return err
		}
		if err != nil {
			return fmt.Errorf("create %q and %d more: %w", names[0], len(names)-1, err)
		}
		for i := range batch {
			batch[i].Version = at
			c.Timed(dir, batch[i].ExpiresNs)
		}
		return nil
	}
}

// whichNotLinked finds the first name of a batch that another has; nil: there
// is none now.
func (c *Catalog) whichNotLinked(ctx context.Context, dir InodeID, names []string) error {
	for _, n := range names {
		if err := c.whyNotLinked(ctx, dir, n); err != nil {
			return fmt.Errorf("create %q: %w", n, err)
		}
	}
	return nil
}
