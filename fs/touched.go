package fs

import (
	"maps"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// The store does not keep when something last changed in a directory: its shown
// modification time moves here with each change that is made or heard of, until
// somebody sets it.

// ownLasts is how long after a change made here its event from the store does
// not count as another change: it would undo a time that was set in between, as
// archivers do last.
const (
	ownLasts = 5 * time.Second
	ownKept  = 4000
)

// take records newer attributes. A modification time that was set counts more
// than the changes seen before. table.mu is held.
func (n *inode) take(e *meta.Entry) {
	if n.entry.MtimeNs != e.MtimeNs {
		n.touched = 0
	}
	n.entry = *e
}

// shown returns the entry as stat shows it. table.mu is held.
func (n *inode) shown() meta.Entry {
	e := n.entry
	if n.touched != 0 {
		e.MtimeNs, e.CtimeNs = max(e.MtimeNs, n.touched), max(e.CtimeNs, n.touched)
	}
	return e
}

// touch counts a change of a name that was made here. t.mu is held.
func (t *table) touch(dir meta.InodeID, name string) {
	now := time.Now()
	t.ours(kid{dir, name}, now)
	if d := t.dirs[dir]; d != nil {
		d.changes++
		d.touched = now.UnixNano()
	}
}

// ours records that a name is changed here. t.mu is held.
func (t *table) ours(k kid, now time.Time) {
	prune(t.own, ownKept, func(at time.Time) bool { return now.Sub(at) > ownLasts })
	t.own[k] = now
}

// markName records that a name is about to be changed here.
func (t *table) markName(dir meta.InodeID, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ours(kid{dir, name}, time.Now())
}

// mark is markName for an inode's name.
func (t *table) mark(n *inode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ours(kid{n.dir, n.entry.Name}, time.Now())
}

// heard counts a change in a directory that the store tells of. t.mu is held.
func (t *table) heard(d *inode, name string) {
	d.changes++
	now := time.Now()
	if at, ok := t.own[kid{d.id, name}]; !ok || now.Sub(at) > ownLasts {
		d.touched = now.UnixNano()
	}
}

// prune drops what is over from a map that has many entries. A map that stays
// full is not looked through each time.
func prune[K comparable, V any](m map[K]V, kept int, over func(V) bool) {
	if n := len(m); n >= kept && n%(kept/2) == 0 {
		maps.DeleteFunc(m, func(_ K, v V) bool { return over(v) })
	}
}

// become makes an inode that keeps its name stand for an entry. t.mu is held.
func (t *table) become(n *inode, e *meta.Entry) {
	if n.entry.Object.ID != e.Object.ID {
		t.unlist(n)
	}
	name := n.entry.Name
	n.take(e)
	n.entry.Name = name
}

// changed records attributes that were set here. Where the content has become
// another, the next open finds out.
func (t *table) changed(n *inode, e *meta.Entry, mtime bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.written() || !n.standsFor(e) {
		return
	}
	if mtime {
		n.touched = 0
	}
	t.become(n, e)
}

// removed reports whether an inode's name was removed here.
func (t *table) removed(n *inode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.gone
}

// nameOf returns the name of an inode.
func (t *table) nameOf(n *inode) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.entry.Name
}

// show returns what stat shows of an inode, and whether its name is gone.
func (t *table) show(n *inode) (e meta.Entry, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.shown(), n.gone
}
