package meta

import (
	"context"
	"fmt"
	"sync"
)

// behind collects signs that the store was rolled back.
type behind struct {
	mu   sync.Mutex
	dirs map[InodeID]uint64
	wake chan struct{}
}

// behindMax is how many directories are remembered: one is enough.
const behindMax = 64

// tellBehind says that a directory had come to version told once.
func (c *Catalog) tellBehind(dir InodeID, told uint64) {
	c.behind.mu.Lock()
	if len(c.behind.dirs) < behindMax || c.behind.dirs[dir] != 0 {
		c.behind.dirs[dir] = max(c.behind.dirs[dir], told)
	}
	c.behind.mu.Unlock()
	select {
	case c.behind.wake <- struct{}{}:
	default:
	}
}

// Behind returns the channel that gets a value when a View found a directory at
// an earlier version than it had been told: perhaps the store was restored from
// a copy. RolledBack tells.
func (c *Catalog) Behind() <-chan struct{} { return c.behind.wake }

// ForgetBehind forgets what Behind told of and what Recheck asks for, which was
// of another epoch.
func (c *Catalog) ForgetBehind() {
	c.made.forget()
	c.behind.mu.Lock()
	defer c.behind.mu.Unlock()
	clear(c.behind.dirs)
}

// RolledBack reports whether the store is behind what it said in the same
// epoch: whether a directory of known, or of those that Behind told of, has come
// to less than the version beside it.
func (c *Catalog) RolledBack(ctx context.Context, known map[InodeID]uint64) (bool, error) {
	c.behind.mu.Lock()
	told := make(map[InodeID]uint64, len(known)+len(c.behind.dirs))
	for d, v := range c.behind.dirs {
		told[d] = v
	}
	c.behind.mu.Unlock()
	for d, v := range known {
		told[d] = max(told[d], v)
	}
	dirs := make([]InodeID, 0, len(told))
	keys := make([]Key, 0, len(told))
	for d := range told {
		dirs, keys = append(dirs, d), append(keys, Key{Slot: dirSlot(d)})
	}
	if len(keys) == 0 {
		return false, nil
	}
	recs, err := c.raw.Get(ctx, keys...)
	if err != nil {
		return false, fmt.Errorf("compare versions: %w", err)
	}
	// Read after the versions: they are of the epoch that this says.
	if err := c.sameStore(ctx); err != nil {
		return false, err
	}
	for i, r := range recs {
		if r.Version < told[dirs[i]] {
			return true, nil
		}
	}
	return false, nil
}
