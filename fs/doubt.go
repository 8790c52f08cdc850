package fs

import (
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// doubt says that what is known of a name was found to be old by an open or a
// stat, which was answered by ESTALE. Until it is over, lookups of the name ask
// the store. One is not enough: the kernel looks up to see that its entry is
// wrong, and again to get a new one.
//
// The kernel walks again once only: a call that is told ESTALE twice fails. So
// that this does not happen to a name that is published again and again, a
// thread that was told takes an inode that was confirmed since its request came:
// that is late enough for it, and nothing newer is owed.
//
// How long all this lasts counts from the answers, not from the requests: the store
// may have been asked for long in between, and is asked again by the second walk.
type doubt struct {
	until time.Time
	told  map[uint32]time.Time // threads that were answered, by when their request had come
}

// Doubts last until the change has surely been heard of. Only when there are
// more than doubtsKept are old ones looked for. The second walk of a thread
// follows at once, or it is another call.
const (
	doubtLasts = 5 * time.Second
	doubtsKept = 1000
	toldKept   = 100
	toldLasts  = 2 * time.Second
)

// mistrust records that a request of thread tid, which came at a time and is
// answered now, found n's name to stand for something else.
func (t *table) mistrust(n *inode, tid uint32, want intent, came, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if want.write {
		t.want(n, now)
	}
	t.doubt(kid{n.dir, n.entry.Name}, tid, came, now)
}

// doubt records that a thread was answered by ESTALE because of a name. t.mu is
// held.
func (t *table) doubt(k kid, tid uint32, came, now time.Time) {
	prune(t.doubts, doubtsKept, func(d doubt) bool { return now.After(d.until) })
	told := t.doubts[k].told
	if told == nil || len(told) >= toldKept {
		told = map[uint32]time.Time{}
	}
	if tid != 0 { // 0 is any thread of another pid namespace
		told[tid] = came
	}
	t.doubts[k] = doubt{until: now.Add(doubtLasts), told: told}
}

// doubted reports whether a name is in doubt. t.mu is held.
func (t *table) doubted(dir meta.InodeID, name string, now time.Time) bool {
	return len(t.doubts) > 0 && now.Before(t.doubts[kid{dir, name}].until)
}

// suffices reports whether n is good enough for thread tid, which need not be
// told ESTALE again.
func (t *table) suffices(n *inode, tid uint32, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.confirmedFor(n, tid, now)
}

// takeConfirmed is suffices for an open, with which the call of the thread is
// over: only once for each time it was told.
func (t *table) takeConfirmed(n *inode, tid uint32, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer delete(t.doubts[kid{n.dir, n.entry.Name}].told, tid)
	return t.confirmedFor(n, tid, now)
}

// confirmedFor is suffices. t.mu is held.
func (t *table) confirmedFor(n *inode, tid uint32, now time.Time) bool {
	came, ok := t.doubts[kid{n.dir, n.entry.Name}].told[tid]
	return ok && !n.confirmed.Before(came) && now.Sub(n.answered) < toldLasts
}
