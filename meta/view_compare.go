package meta

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// compareEvery is how often the watches of directories that are in use are
	// compared with the store. One that has not told within that time what the
	// store had is taken for dead: names in memory would stay as they are.
	compareEvery = 4 * time.Second
	// compareMost is how many are, at once: one read.
	compareMost = 64
	// usedFor is how long a directory counts as in use: as long as a kernel
	// answers by itself.
	usedFor = time.Minute
)

// compareWatches asks the store how far the directories in use have come, and
// begins the watches anew that were behind the last time and have not told of it
// until now. An idle View asks nothing.
func (v *View) compareWatches(ctx context.Context) {
	if v.health.down() {
		return
	}
	dirs := v.usedDirs()
	if len(dirs) == 0 {
		return
	}
	ids, known := make([]InodeID, len(dirs)), make([]asked, len(dirs))
	for i, d := range dirs {
		ids[i], known[i] = d.id, v.ask(d)
	}
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeout)
	defer cancel()
	at, err := v.cat.dirVersions(ctx, ids)
	v.health.report(err)
	if err != nil {
		return
	}
	for i, d := range dirs {
		if at[i] < known[i].told {
			if v.doubt(ctx, known[i], at[i]) == nil {
				v.checkHistory(d, known[i].told, at[i])
			}
		} else if d.deaf(at[i]) {
			v.log.Warn("the watch of a directory did not tell of a change: it begins anew", "dir", fmt.Sprintf("%016x", uint64(d.id)), "now", at[i])
		}
	}
}

// usedDirs returns directories that were used within usedFor, those first that
// were compared the longest time ago.
func (v *View) usedDirs() []*dirCache {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	var out []*dirCache
	for el := v.lru.Front(); el != nil; el = el.Next() { // the front was used last
		d := el.Value.(*dirCache)
		if now.Sub(d.used) > usedFor {
			break
		}
		out = append(out, d)
	}
	slices.SortStableFunc(out, func(a, b *dirCache) int { return a.compared.Compare(b.compared) })
	out = out[:min(len(out), compareMost)]
	for _, d := range out {
		d.compared = now
	}
	return out
}

// late notes that the store had come to version at, which the watch has not told.
func (d *dirCache) late(at uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == dirReady && d.version < at && d.behind == 0 {
		d.behind = at
	}
}

// deaf takes in that the store has come to version at. It ends the watch, and
// reports so, if that has not even told of what the store had the last time.
func (d *dirCache) deaf(at uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != dirReady || d.version >= at {
		d.behind = 0
		return false
	}
	deaf := d.behind != 0 && d.version < d.behind && d.anew != nil
	if deaf {
		d.anew()
	}
	d.behind = at
	return deaf
}
