package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// rest fetches what is missing of objects that are open here when their names
// go: their keepers give them up some time after. Safe for concurrent use.
type rest struct {
	queue chan lost

	mu      sync.Mutex
	fetched map[chunk.ObjectID]bool // queued or under way
}

// lost is an open file whose name may have gone.
type lost struct {
	dir   meta.InodeID
	entry meta.Entry
}

// restQueue bounds the files that wait to be looked at.
const restQueue = 1000

func newRest() *rest {
	return &rest{queue: make(chan lost, restQueue), fetched: map[chunk.ObjectID]bool{}}
}

// add queues a file, unless it is queued already, or the queue is full.
func (r *rest) add(l lost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fetched[l.entry.Object.ID] {
		return
	}
	select {
	case r.queue <- l:
		r.fetched[l.entry.Object.ID] = true
	default:
	}
}

func (r *rest) end(id chunk.ObjectID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.fetched, id)
}

// nameChanged is told of every change of a name that this node hears of, before
// the mount is; an empty name: anything in the directory may have changed. It
// does not block.
func (n *Node) nameChanged(dir meta.InodeID, name string) {
	m := n.mounted.Load()
	if m == nil {
		return
	}
	for _, e := range m.Unfinished(dir, name) {
		n.rest.add(lost{dir, e})
	}
	if n.collection.keeps(dir) {
		n.collectSoon()
	}
}

// runRest fetches until ctx ends.
func (n *Node) runRest(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-n.rest.queue:
			wg.Go(func() {
				defer n.rest.end(l.entry.Object.ID)
				n.fetchRest(ctx, l.dir, l.entry)
			})
		}
	}
}

// fetchRest brings all of an open object here if its name stands for something
// else now. While that goes on, and while it cannot be done, its keepers are
// told that somebody reads it.
func (n *Node) fetchRest(ctx context.Context, dir meta.InodeID, e meta.Entry) {
	now, err := n.view.Confirm(ctx, dir, e.Name)
	if err == nil && now.Object.ID == e.Object.ID || err != nil && !errors.Is(err, meta.ErrNotFound) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, interestCap)
	defer cancel()
	attending := n.attend(ctx, e.Object)
	defer attending.Wait()
	defer cancel()
	for wait := time.Second; n.isUnfinished(dir, e); wait = min(2*wait, time.Minute) {
		err := n.getOne(ctx, e, func(int64) error { return nil })
		if err == nil || ctx.Err() != nil {
			return
		}
		n.log.Info("a file that is open here lost its name, and not all of it can be had yet", "name", e.Name, "object", e.Object.ID, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// isUnfinished reports whether a file is still open and not all here.
func (n *Node) isUnfinished(dir meta.InodeID, e meta.Entry) bool {
	for _, o := range n.mounted.Load().Unfinished(dir, e.Name) {
		if o.Object.ID == e.Object.ID {
			return true
		}
	}
	return false
}

// attend tells the keepers of an object that it is read here, until ctx ends.
func (n *Node) attend(ctx context.Context, o chunk.Object) *sync.WaitGroup {
	var wg sync.WaitGroup
	providers, err := n.registry.Locate(ctx, o.Set)
	if err != nil {
		n.log.Debug("keepers not told of a reader", "object", o.ID, "err", err)
	}
	for _, p := range providers {
		if !p.Keeper || p.Node == n.id {
			continue
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := n.peers.attend(ctx, p.Peer, o); errors.Is(err, chunk.ErrNotHeld) || errors.Is(err, chunk.ErrWrongNode) {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	return &wg
}
