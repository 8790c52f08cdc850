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

// asked is what was known when the store was asked about a directory.
type asked struct {
	told  uint64 // the latest version of it
	epoch Epoch  // of the store
	held  bool   // names were being brought back
}

// ask notes what is known of d, nil for nothing, before the store is asked.
func (v *View) ask(d *dirCache) asked {
	held := v.cat.Held() // before the epoch, which a restoration changes later
	info, _ := v.cat.Joined()
	return asked{told: d.told(), epoch: info.Epoch, held: held}
}

// doubt asks whether the store is the right one when an answer at version at may
// be another store's: one that knows nothing of the directory, or less than it
// has said. What it said while names were brought back may have been half of it.
func (v *View) doubt(ctx context.Context, a asked, at uint64) error {
	info, _ := v.cat.Joined()
	same := !a.held && a.epoch == info.Epoch && !v.cat.Held()
	if same && at != 0 && at >= a.told {
		return nil
	}
	if err := v.recheck(ctx); err != nil || same {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, errRestoring)
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

// awaitStore returns when the store has been seen to be the right one, or refuses
// to tell; false when d was evicted first. What is known of d stays until then.
func (v *View) awaitStore(d *dirCache) bool {
	for {
		ctx, cancel := context.WithTimeout(d.ctx, v.cfg.Timeout)
		err := v.cat.CheckStore(ctx)
		cancel()
		if d.ctx.Err() != nil {
			return false
		}
		if !errors.Is(err, ErrUnavailable) {
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
