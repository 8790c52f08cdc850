package fs

import (
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// rootNode is the kernel's node id of the mountpoint.
const rootNode = 1

// inode is what the kernel knows by one node id, from the first lookup that
// answered it until the kernel forgets it. Node ids are never used twice.
type inode struct {
	node uint64
	gen  uint64
	kind meta.Kind
	id   meta.InodeID

	// Guarded by table.mu.
	dir       meta.InodeID // directory it was looked up in, under entry.Name
	entry     meta.Entry
	lookups   uint64
	confirmed time.Time // when the last confirming read that found it began; see doubt
	answered  time.Time // when a lookup was last answered by such a read
	changes   uint64    // directories: grows with every change inside
	touched   int64     // directories: when the last of them was seen, ns since 1970
	gone      bool      // its name was removed here
	file      *file     // nil until the first open
}

// standsFor reports whether the inode goes on as the entry. A directory is its
// id, whatever else is said of it, and so is a file that is being written here,
// unless it is outdated: its content is that of the WriteFile. table.mu is held.
func (n *inode) standsFor(e *meta.Entry) bool {
	if n.kind == meta.KindDir || n.written() {
		return e.Kind == n.kind && e.Inode == n.id && !n.outdated()
	}
	return n.entry.SameContent(*e)
}

// table maps node ids and names to inodes. Methods do not block and hold the
// lock only for memory.
type table struct {
	mu      sync.Mutex
	next    uint64
	nodes   map[uint64]*inode
	dirs    map[meta.InodeID]*inode            // a directory keeps its inode wherever it moves
	kids    map[meta.InodeID]map[string]*inode // the inode a name stands for now
	objects map[chunk.ObjectID]map[*inode]struct{}
	doubts  map[kid]doubt
	strays  map[walker]strayed
	wants   map[kid]time.Time // names that are about to be opened for writing, until when
	own     map[kid]time.Time // names changed here, when
}

// kid is a name in a directory.
type kid struct {
	dir  meta.InodeID
	name string
}

// init makes a table that knows the root.
func (t *table) init(root meta.Entry) {
	t.next = rootNode + 1
	t.nodes = map[uint64]*inode{}
	t.dirs = map[meta.InodeID]*inode{}
	t.kids = map[meta.InodeID]map[string]*inode{}
	t.objects = map[chunk.ObjectID]map[*inode]struct{}{}
	t.doubts = map[kid]doubt{}
	t.strays = map[walker]strayed{}
	t.wants = map[kid]time.Time{}
	t.own = map[kid]time.Time{}
	r := &inode{node: rootNode, gen: 1, kind: meta.KindDir, id: root.Inode, dir: root.Inode, entry: root, lookups: 1}
	t.nodes[rootNode], t.dirs[root.Inode] = r, r
}

// get returns the inode of a node id; nil if there is none.
func (t *table) get(node uint64) *inode {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes[node]
}

// where returns the name an inode was last seen under and its entry.
func (t *table) where(n *inode) (dir meta.InodeID, e meta.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.dir, n.entry
}

// child returns the inode a name stands for; nil if the kernel knows none.
func (t *table) child(dir meta.InodeID, name string) *inode {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kids[dir][name]
}

// dirNode returns the kernel's node id of a directory, 0 if it knows none.
func (t *table) dirNode(dir meta.InodeID) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.dirs[dir]; n != nil {
		return n.node
	}
	return 0
}

// seen returns the count of changes in a directory, to be compared after its
// names were asked for.
func (t *table) seen(dir *inode) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return dir.changes
}

// enter returns the inode that stands for an entry, made if there is none,
// and counts one lookup of it. t.mu is held.
func (t *table) enter(dir meta.InodeID, e *meta.Entry) *inode {
	n := t.kids[dir][e.Name]
	gen := uint64(1)
	if n != nil && !n.standsFor(e) {
		gen = n.gen + 1
		t.unname(n)
		n = nil
	}
	if n != nil && n.mixes() && t.wanted(dir, e.Name, time.Now()) {
		gen = n.gen + 1
		t.unname(n)
		n = nil
	}
	if n == nil && e.Kind == meta.KindDir {
		if n = t.dirs[e.Inode]; n != nil { // it has moved
			t.unname(n)
		}
	}
	if n == nil {
		n = &inode{node: t.next, gen: gen, kind: e.Kind, id: e.Inode}
		t.next++
		t.nodes[n.node] = n
		if e.Kind == meta.KindDir {
			t.dirs[e.Inode] = n
		}
	}
	n.dir = dir
	if n.written() {
		n.entry.Name = e.Name
	} else {
		n.take(e)
	}
	n.lookups++
	t.name(n)
	return n
}

// name makes n the inode of its name. t.mu is held.
func (t *table) name(n *inode) {
	kids := t.kids[n.dir]
	if kids == nil {
		kids = map[string]*inode{}
		t.kids[n.dir] = kids
	}
	kids[n.entry.Name] = n
}

// unname takes n's name away from it if it still has it: the next lookup of
// the name makes another inode. t.mu is held.
func (t *table) unname(n *inode) {
	kids := t.kids[n.dir]
	if kids[n.entry.Name] != n {
		return
	}
	delete(kids, n.entry.Name)
	if len(kids) == 0 {
		delete(t.kids, n.dir)
	}
}

// forget takes lookups back; the last one frees the inode.
func (t *table) forget(node, lookups uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	if n == nil || node == rootNode {
		return
	}
	if n.lookups -= min(lookups, n.lookups); n.lookups > 0 {
		return
	}
	delete(t.nodes, node)
	t.unname(n)
	if t.dirs[n.id] == n {
		delete(t.dirs, n.id)
	}
	t.unlist(n)
}

// changesIn is seen for a directory by its id; 0 if the kernel knows none.
func (t *table) changesIn(dir meta.InodeID) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.dirs[dir]; d != nil {
		return d.changes
	}
	return 0
}

// still reports whether n goes on as the entry.
func (t *table) still(n *inode, e *meta.Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.standsFor(e)
}

// isOpen reports whether n has handles.
func (t *table) isOpen(n *inode) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.file != nil && n.file.handles > 0
}

// list makes n findable by its object. t.mu is held.
func (t *table) list(n *inode) {
	id := n.entry.Object.ID
	if t.objects[id] == nil {
		t.objects[id] = map[*inode]struct{}{}
	}
	t.objects[id][n] = struct{}{}
}

// unlist undoes list. t.mu is held.
func (t *table) unlist(n *inode) {
	id := n.entry.Object.ID
	if delete(t.objects[id], n); len(t.objects[id]) == 0 {
		delete(t.objects, id)
	}
}

// refresh records newer attributes of what n stands for; it reports whether
// stat shows a difference.
func (t *table) refresh(n *inode, e *meta.Entry) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.written() {
		return false
	}
	changed = !sameAttr(&n.entry, e)
	name := n.entry.Name
	n.take(e)
	n.entry.Name = name
	return changed
}

// inodes returns how many inodes the kernel knows.
func (t *table) inodes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes)
}
