package fs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// The kernel walks to a name through directories it remembers. One of them may
// have been moved, removed or replaced elsewhere a moment ago, with nobody told
// yet. Then the name was asked for in the wrong directory: that it is not there
// says nothing, and what is there may not be what was meant.

// wayDepth is how deep a directory may lie for its way to be confirmed. What the
// table knows may be old, and then go in a circle.
const wayDepth = 1000

// way returns how the kernel comes to a directory, as far as it is known.
func (t *table) way(dir meta.InodeID) meta.Way {
	t.mu.Lock()
	defer t.mu.Unlock()
	var w meta.Way
	for n := t.dirs[dir]; n != nil && n.node != rootNode; n = t.dirs[n.dir] {
		if len(w) == wayDepth {
			return nil
		}
		w = append(w, meta.Step{Dir: n.dir, Name: n.entry.Name, Inode: n.id})
	}
	slices.Reverse(w)
	return w
}

// confirmedWay returns the way to a directory that is to be confirmed with a name in
// it; none if nothing is.
func (f *FS) confirmedWay(dir meta.InodeID) meta.Way {
	if f.cfg.Consistency != ConsistencyOpen {
		return nil
	}
	return f.table.way(dir)
}

// standing returns whether the kernel came to a directory by names that still stand
// for what they did, on behalf of a request of thread tid that came at a time; moved
// is what the store says of the way. meta.ErrStale: the thread has not been told yet,
// and is to be: the kernel walks again, and each name is confirmed. One that was told
// did not come by names: it works in a directory that was moved.
func (f *FS) standing(way meta.Way, moved error, tid uint32, came time.Time) error {
	switch {
	case len(way) == 0:
		return nil
	case moved == nil:
		f.table.stood(way, tid)
	case errors.Is(moved, meta.ErrStale) && f.table.mistrustWay(way, tid, came, time.Now()):
		return nil
	}
	return moved
}

// absent returns what a request learns of a name that was not found in a
// directory: err, or why that says nothing.
func (f *FS) absent(ctx context.Context, dir meta.InodeID, tid uint32, came time.Time, err error) error {
	way := f.confirmedWay(dir)
	if len(way) == 0 {
		return err
	}
	if moved := f.standing(way, f.cfg.Names.Standing(ctx, way), tid, came); moved != nil {
		return moved
	}
	return err
}

// strayed says that a thread was told of a directory that it had not come to by
// names that stand.
type strayed struct {
	dir meta.InodeID
	at  time.Time // of the answer
}

// walker is a thread and the last name of the way it came.
type walker struct {
	kid
	tid uint32
}

func lastOf(way meta.Way, tid uint32) walker {
	last := way[len(way)-1]
	return walker{kid{last.Dir, last.Name}, tid}
}

// mistrustWay puts every name of a way in doubt; told says that the thread has been
// told of this very directory a moment before its request came; now is when that is
// answered.
func (t *table) mistrustWay(way meta.Way, tid uint32, came, now time.Time) (told bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, id := lastOf(way, tid), way[len(way)-1].Inode
	if was, ok := t.strays[w]; ok && was.dir == id && came.Sub(was.at) < toldLasts {
		return true
	}
	for _, s := range way {
		t.doubt(kid{s.Dir, s.Name}, tid, came, now)
	}
	prune(t.strays, doubtsKept, func(s strayed) bool { return now.Sub(s.at) >= toldLasts })
	if tid != 0 { // 0 is any thread of another pid namespace
		t.strays[w] = strayed{id, now}
	}
	return false
}

// stood records that a thread has come by a way that stands: what it was told
// before is over.
func (t *table) stood(way meta.Way, tid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.strays) > 0 {
		delete(t.strays, lastOf(way, tid))
	}
}
