package node

import (
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// heldBack is the objects without a name that are never collected: the names may
// have been lost with the store. Its zero value has none. Safe for concurrent
// use.
type heldBack struct {
	mu  sync.Mutex
	ids map[chunk.ObjectID]bool
}

func (h *heldBack) add(ids []chunk.ObjectID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[chunk.ObjectID]bool{}
	}
	for _, id := range ids {
		h.ids[id] = true
	}
}

// remove returns those that were there.
func (h *heldBack) remove(ids []chunk.ObjectID) (were []chunk.ObjectID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.ids[id] {
			delete(h.ids, id)
			were = append(were, id)
		}
	}
	return were
}

func (h *heldBack) has(id chunk.ObjectID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ids[id]
}

// count returns how many there are that are still kept.
func (h *heldBack) count(kept func(chunk.ObjectID) bool) (n int64) {
	h.mu.Lock()
	ids := make([]chunk.ObjectID, 0, len(h.ids))
	for id := range h.ids {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	for _, id := range ids {
		if kept(id) {
			n++
		}
	}
	return n
}

// heldCount is how many objects are held after a restoration.
func (n *Node) heldCount() int64 {
	return n.restorer.guard.held.count(func(id chunk.ObjectID) bool {
		info, ok := n.cache.Stat(id)
		return ok && (info.Keeper || info.InPlace)
	})
}

// heldWarning tells people of them; empty: there are none.
func (n *Node) heldWarning() string {
	if c := n.heldCount(); c > 0 {
		return fmt.Sprintf("%d files are held after a restoration: they have no name since the metadata store was lost", c)
	}
	return ""
}

// lastPlace returns where the name of an object is known to have been.
func (n *Node) lastPlace(i cache.Info) meta.Place {
	if at := n.collection.placeOf(i.Object.ID); at.Dir != 0 {
		return at
	}
	if dir, name, ok := placeOf(i.Note); ok {
		return meta.Place{Dir: dir, Name: name}
	}
	return meta.Place{}
}
