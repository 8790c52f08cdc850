package node

import (
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
)

// interest counts the nodes that follow what this one holds of an object: they
// read it, though its name may be gone. The zero value counts nothing yet.
// Safe for concurrent use.
type interest struct {
	mu    sync.Mutex
	count map[chunk.ObjectID]int
}

// add counts one more, until the returned function is called, once.
func (i *interest) add(id chunk.ObjectID) (done func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.count == nil {
		i.count = map[chunk.ObjectID]int{}
	}
	i.count[id]++
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.count[id]--; i.count[id] == 0 {
			delete(i.count, id)
		}
	}
}

// has reports whether anybody is counted.
func (i *interest) has(id chunk.ObjectID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count[id] > 0
}
