package meta

import (
	"context"
	"fmt"
	"time"
)

const (
	// compareEvery is how often the watches of directories that are in use are
	// compared with the store. One that has not told within that time what the
	// store had is taken for dead: names in memory would stay as they are.
	compareEvery = 4 * time.Second
	// compareMost is how many are, at once: one read.
	compareMost = 64
)

// compareWatches asks the store how far the directories that were used since the
// last time have come, and begins the watches anew that were behind then and
// have not told of it until now. An idle View asks nothing.
func (v *View) compareWatches(ctx context.Context) {
	if v.health.down() {
		return
	}
	dirs := v.usedDirs()
	if len(dirs) == 0 {
		return
	}
	ids := make([]InodeID, len(dirs))
	for i, d := range dirs {
		ids[i] = d.id
	}
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeout)
	defer cancel()
	at, err := v.cat.dirVersions(ctx, ids)
	v.health.report(err)
	if err != nil {
		return
	}
	for i, d := range dirs {
		behind, deaf := d.compare(at[i])
		if deaf {
			v.log.Warn("the watch of a directory did not tell of a change: it begins anew", "dir", fmt.Sprintf("%016x", uint64(d.id)), "now", at[i])
		}
		if behind {
			v.use(d)
		}
	}
}

// usedDirs returns directories that were used since it returned them last.
func (v *View) usedDirs() []*dirCache {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []*dirCache
	for el := v.lru.Front(); el != nil && len(out) < compareMost; el = el.Next() {
		if d := el.Value.(*dirCache); d.used {
			d.used = false
			out = append(out, d)
		}
	}
	return out
}

func (v *View) use(d *dirCache) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.used = true
}

// compare takes in that the store has come to version at, which the watch is
// behind; it is deaf, and ended, if it has not even told of what the store had
// the last time.
func (d *dirCache) compare(at uint64) (behind, deaf bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != dirReady || d.version >= at {
		d.behind = 0
		return false, false
	}
	if deaf = d.behind != 0 && d.version < d.behind && d.anew != nil; deaf {
		d.anew()
	}
	d.behind = at
	return true, deaf
}
