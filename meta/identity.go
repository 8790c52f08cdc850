package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrOtherStore comes with ErrUnavailable: the store answers, and is not the
// one that was joined, or not yet again. It was emptied, made anew or exchanged,
// and what it lacks says nothing of this cluster's names.
var ErrOtherStore = errors.New("it is not the store of this cluster any more")

// CheckStore reports whether the store is still the one that was joined:
// ErrOtherStore and ErrUnavailable if not. Before Join and UseStore any will do.
func (c *Catalog) CheckStore(ctx context.Context) error {
	if err := c.sameStore(ctx); err != nil {
		return err
	}
	if c.Held() {
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, ErrOtherStore, errRestoring)
	}
	return nil
}

// sameStore is CheckStore for those who restore the store.
func (c *Catalog) sameStore(ctx context.Context) error {
	recs, err := c.raw.Get(ctx, Key{StoreSlot, self})
	if err != nil {
		return fmt.Errorf("read the store's own record: %w", err)
	}
	joined := c.store.Load()
	if joined == nil {
		return nil
	}
	if recs[0].Value == nil {
		c.tellLost()
		return fmt.Errorf("%w: %w: it is empty, and was of cluster %s", ErrUnavailable, ErrOtherStore, joined.Cluster)
	}
	now, err := UnmarshalStore(recs[0].Value)
	switch {
	case err != nil:
		return err
	case now.Cluster != joined.Cluster:
		return fmt.Errorf("%w: %w: it is of cluster %s, and was of %s", ErrUnavailable, ErrOtherStore, now.Cluster, joined.Cluster)
	case now.Epoch != joined.Epoch:
		c.tellLost()
		return fmt.Errorf("%w: %w: it has another history", ErrUnavailable, ErrOtherStore)
	}
	c.live.Store(true)
	return nil
}

// doubt asks whether the store is the right one when an answer at version at,
// of a directory that had come to version told, may be another store's: one
// that knows nothing of the directory, or less than it has said.
func (v *View) doubt(ctx context.Context, told, at uint64) error {
	if at != 0 && at >= told && !v.cat.Held() {
		return nil
	}
	return v.recheck(ctx)
}

// contradicts reports whether the store says something else of a name than is
// known, and no watch has told: rare in the right store, usual in another.
func (v *View) contradicts(dir InodeID, name string, e Entry, err error) bool {
	was, know := v.recall(dir, name)
	if know == unknown {
		var ok bool
		if was, ok = v.local.Entry(dir, name); ok {
			know = present
		}
	}
	return know == present && (err != nil || e.Inode != was.Inode)
}

// recheck asks whether the store is the right one.
func (v *View) recheck(ctx context.Context) error {
	err := v.cat.CheckStore(ctx)
	if err != nil {
		v.health.report(err)
	}
	return err
}

// awaitStore returns when the store is not known to be another one; false when
// d was evicted first.
func (v *View) awaitStore(d *dirCache) bool {
	for {
		ctx, cancel := context.WithTimeout(d.ctx, v.cfg.Timeout)
		err := v.cat.CheckStore(ctx)
		cancel()
		if d.ctx.Err() != nil {
			return false
		}
		if !errors.Is(err, ErrOtherStore) {
			return true
		}
		v.health.report(err)
		select {
		case <-d.ctx.Done():
			return false
		case <-time.After(probePause):
		}
	}
}
