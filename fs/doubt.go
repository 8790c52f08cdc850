package fs

import (
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// doubt says that what is known of a name was found to be old by an open, which
// was answered by ESTALE. Until it is over, lookups of the name ask the store.
// One is not enough: the kernel looks up to see that its entry is wrong, and
// again to get a new one.
//
// The kernel walks again once only: an open that is told ESTALE twice fails.
// So that this does not happen to a name that is published again and again, the
// second open of a thread that was told takes an inode that was confirmed since
// its first one came: that is late enough for it, and nothing newer is owed.
type doubt struct {
	until time.Time
	told  map[uint32]time.Time // threads that were answered, by when their open had come
}

// Doubts last until the change has surely been heard of. Only when there are
// more than doubtsKept are old ones looked for. The second open of a thread
// follows at once, or it is another one.
const (
	doubtLasts = 5 * time.Second
	doubtsKept = 1000
	toldKept   = 100
	toldLasts  = time.Second
)

// mistrust records that the open of thread tid, which came at a time, found n's
// name to stand for something else.
func (t *table) mistrust(n *inode, tid uint32, want intent, came time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if want.write {
		t.want(n, came)
	}
	prune(t.doubts, doubtsKept, func(d doubt) bool { return came.After(d.until) })
	k := kid{n.dir, n.entry.Name}
	told := t.doubts[k].told
	if told == nil || len(told) >= toldKept {
		told = map[uint32]time.Time{}
	}
	if tid != 0 { // 0 is any thread of another pid namespace
		told[tid] = came
	}
	t.doubts[k] = doubt{until: came.Add(doubtLasts), told: told}
}

// doubted reports whether a name is in doubt. t.mu is held.
func (t *table) doubted(dir meta.InodeID, name string, now time.Time) bool {
	return len(t.doubts) > 0 && now.Before(t.doubts[kid{dir, name}].until)
}

// takeConfirmed reports, once for each time it was told, whether n is good
// enough for an open of thread tid, which need not ask again then.
func (t *table) takeConfirmed(n *inode, tid uint32, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.doubts[kid{n.dir, n.entry.Name}]
	came, ok := d.told[tid]
	delete(d.told, tid)
	return ok && !n.confirmed.Before(came) && now.Sub(n.confirmed) < toldLasts
}
