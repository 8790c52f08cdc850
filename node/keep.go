package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// errLeaving: a node cannot be relied on to keep what it is giving up itself.
var errLeaving = errors.New("it is giving its own copy up")

// errLastCopy: nobody else could be made a keeper.
var errLastCopy = errors.New("it is a kept copy, and no other node that can be reached holds all of it; add --force to give it up all the same")

// leaving counts the kept copies that are being given up. Two keepers must not
// each rely on the other. Safe for concurrent use.
type leaving struct {
	mu    sync.Mutex
	count map[chunk.ObjectID]int
}

// begin says that a copy is being given up, until the returned function is
// called, once.
func (l *leaving) begin(id chunk.ObjectID) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == nil {
		l.count = map[chunk.ObjectID]int{}
	}
	l.count[id]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.count[id]--; l.count[id] == 0 {
			delete(l.count, id)
		}
	}
}

func (l *leaving) has(id chunk.ObjectID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[id] > 0
}

// ownHoldings shows the peer service what is here.
type ownHoldings struct{ node *Node }

var _ holdings = ownHoldings{}

// Held implements holdings.
func (h ownHoldings) Held(id chunk.ObjectID) (chunk.Held, bool, bool) {
	info, held, ok := h.node.cache.Peek(id)
	return held, info.Keeper, ok
}

// Bind implements holdings.
func (h ownHoldings) Bind(ctx context.Context, id chunk.ObjectID, block int) error {
	b, err := h.node.cache.Block(ctx, id, block)
	if err != nil {
		return err
	}
	return b.Release()
}

// Keep implements holdings: the copy is kept, and the store says so, before it
// returns.
func (h ownHoldings) Keep(ctx context.Context, id chunk.ObjectID, set chunk.SetID, size int64) error {
	n := h.node
	if n.leaving.has(id) {
		return errLeaving
	}
	info, ok := n.cache.Stat(id)
	switch {
	case !ok || !info.Complete || info.Object.Set != set || info.Object.Size != size:
		return fmt.Errorf("keep object %s: %w", id.Short(), chunk.ErrNotHeld)
	case info.Damaged != "":
		return fmt.Errorf("keep object %s: %w: %s: %w", id.Short(), chunk.ErrDamaged, info.Damaged, chunk.ErrNotHeld)
	}
	if info.InPlace {
		if state, _, _ := n.cache.Source(id); state != cache.SourceOK {
			return fmt.Errorf("keep object %s: its registered file is %s: %w", id.Short(), state, chunk.ErrNotHeld)
		}
	} else if err := n.keepFetched(ctx, id, info.Keeper); err != nil {
		return err
	}
	if err := n.catalog.Announce(ctx, set, n.id, true, true); err != nil {
		err = fmt.Errorf("announce set %s: %w", set, err)
		if !info.Keeper {
			err = errors.Join(err, n.cache.Keep(context.WithoutCancel(ctx), id, false))
		}
		return err
	}
	return nil
}

// keepFetched keeps a fetched copy, and makes its bytes durable: others will
// rely on it. It may have been evicted, and begun anew, since it was looked at.
func (n *Node) keepFetched(ctx context.Context, id chunk.ObjectID, kept bool) error {
	if err := n.cache.Keep(ctx, id, true); err != nil {
		return err
	}
	err := n.cache.Flush(ctx, id)
	if err == nil {
		if info, ok := n.cache.Stat(id); !ok || !info.Complete {
			err = fmt.Errorf("keep object %s: %w", id.Short(), chunk.ErrNotHeld)
		}
	}
	if err != nil && !kept {
		err = errors.Join(err, n.cache.Keep(context.WithoutCancel(ctx), id, false))
	}
	return err
}

// handover makes others keepers of what this node gives up. It remembers the
// providers of the sets it was asked about: for one command.
type handover struct {
	node *Node
	sets map[chunk.SetID][]meta.ProviderInfo
}

func (n *Node) handover() *handover {
	return &handover{node: n, sets: map[chunk.SetID][]meta.ProviderInfo{}}
}

// over returns when another node that lives is a keeper of an object and has
// said so. errLastCopy: there is none.
func (h *handover) over(ctx context.Context, o chunk.Object) error {
	providers, ok := h.sets[o.Set]
	if !ok {
		var err error
		if providers, err = h.node.catalog.Providers(ctx, o.Set); err != nil {
			return err
		}
		rank := func(p meta.ProviderInfo) int {
			switch {
			case p.Keeper:
				return 0
			case p.Complete:
				return 1
			}
			return 2
		}
		slices.SortStableFunc(providers, func(a, b meta.ProviderInfo) int { return rank(a) - rank(b) })
		h.sets[o.Set] = providers
	}
	var tried []string
	for _, p := range providers {
		if p.Node == h.node.id || !p.Alive {
			continue
		}
		err := h.ask(ctx, p.Peer, o)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, chunk.ErrNotHeld) && len(tried) < 8:
			tried = append(tried, err.Error())
		}
	}
	if len(tried) > 0 {
		return fmt.Errorf("%w (%s)", errLastCopy, strings.Join(tried, "; "))
	}
	return errLastCopy
}

// ask makes a node a keeper. What it holds is asked first: one that is out of
// reach is found out in the time of a short call, and the next one tried.
func (h *handover) ask(ctx context.Context, p chunk.Peer, o chunk.Object) error {
	blocks, _, err := h.node.peers.holds(ctx, p, o)
	if err == nil && blocks < o.Blocks() {
		err = fmt.Errorf("ask node %s for object %s: %d blocks of %d: %w", p.Name, o.ID.Short(), blocks, o.Blocks(), chunk.ErrNotHeld)
	}
	if err != nil {
		return err
	}
	return h.node.peers.keep(ctx, p, o)
}

// giveUp ends the keeping of a copy: another keeper first, unless it is forced,
// then the bytes here, or the registration. It returns the bytes freed.
func (h *handover) giveUp(ctx context.Context, info cache.Info, force bool) (freed int64, err error) {
	n, o := h.node, info.Object
	defer n.leaving.begin(o.ID)()
	if !force {
		if err := h.over(ctx, o); err != nil {
			return 0, err
		}
	}
	if info.InPlace {
		if err := n.cache.Loosen(ctx, o.ID); err != nil {
			return 0, err
		}
		return 0, n.cache.ForgetInPlace(ctx, []chunk.ObjectID{o.ID})
	}
	if err := n.cache.Keep(ctx, o.ID, false); err != nil {
		return 0, err
	}
	n.collection.gone(o.ID)
	return n.cache.Drop(ctx, o.ID)
}

// settle makes this node's records of sets say what it holds of them now: less
// than before, perhaps.
func (n *Node) settle(ctx context.Context, sets map[chunk.SetID]bool) error {
	if len(sets) == 0 {
		return nil
	}
	held, err := n.cache.Sets(ctx)
	if err != nil {
		return fmt.Errorf("list what is held here: %w", err)
	}
	left := map[chunk.SetID]cache.SetInfo{}
	for _, s := range held {
		if sets[s.Set] {
			left[s.Set] = s
		}
	}
	for set := range sets {
		s, still := left[set]
		if still && s.Keeper || n.usesSet != nil && n.usesSet(set) {
			continue
		}
		if err := n.registry.withdraw(ctx, set); err != nil {
			return err
		}
		if !still { // unless something has come since
			if err := n.withdrawn(ctx, set); err != nil {
				return err
			}
			continue
		}
		if err := n.registry.Announce(ctx, set, s.Complete); err != nil {
			return err
		}
	}
	return nil
}

// noteOf is what the cache remembers of where the name of an object was made.
func noteOf(dir meta.InodeID, name string) string {
	return string(append(binary.BigEndian.AppendUint64(nil, uint64(dir)), name...))
}

// placeOf reads what noteOf wrote.
func placeOf(note string) (dir meta.InodeID, name string, ok bool) {
	if len(note) <= 8 {
		return 0, "", false
	}
	return meta.InodeID(binary.BigEndian.Uint64([]byte(note[:8]))), note[8:], true
}
