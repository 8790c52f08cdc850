package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Recorder is told what this process did to names, so that they can be brought
// back into a store that lost them. node/journal implements it.
type Recorder interface {
	// Changed takes one change of a directory's names that the store has
	// made, with the version it gave. The slice and its values are the
	// recorder's: nobody changes them any more. It must be quick.
	Changed(dir InodeID, at Origin, sets []Set)
}

// holdPatience is how long a change of names waits for the end of a
// restoration before it fails as in an outage.
const holdPatience = 10 * time.Second

// gate is the store as the rules of names see it. It adds to each change of a
// directory what later epochs of the store need, so that no rule has to think
// of it: the origin of what is written, a tombstone for what is removed, and
// word to the Recorder. While names are being restored it lets no change in: a
// name that was not back yet would be made twice.
type gate struct {
	Slots
	c *Catalog

	mu       sync.Mutex
	released chan struct{} // nil: not held; closed when it is over
}

// Apply implements Slots.
func (g *gate) Apply(ctx context.Context, slot Slot, conds []If, sets []Set) (uint64, error) {
	at, err := g.apply(ctx, slot, conds, sets)
	if err == nil {
		g.c.made.note(slot, at)
	}
	return at, err
}

func (g *gate) apply(ctx context.Context, slot Slot, conds []If, sets []Set) (uint64, error) {
	dir, ok := slot.dir()
	if !ok {
		return g.Slots.Apply(ctx, slot, conds, sets)
	}
	if err := g.await(ctx); err != nil {
		return 0, fmt.Errorf("change %s: %w", slot, err)
	}
	info := g.c.store.Load()
	if info == nil {
		return g.Slots.Apply(ctx, slot, conds, sets)
	}
	out := sets
	if len(info.Epochs) > 0 {
		var err error
		if out, err = withOrigins(info.Epoch, sets); err != nil {
			return 0, err
		}
	}
	// A change that is meant for another epoch would be later or earlier than
	// what it follows, or stand for what was not brought back yet.
	conds = append(slices.Clip(conds), If{Store: true, Field: epochField(info.Epoch), Present: true})
	at, err := g.Slots.Apply(ctx, slot, conds, out)
	if errors.Is(err, ErrConflict) {
		err = g.conflict(ctx, info.Epoch, err)
	}
	if err == nil && g.c.recorder != nil {
		g.c.recorder.Changed(dir, Origin{info.Epoch, at}, sets)
	}
	return at, err
}

// conflict returns what became of a change: another change, which err says, or
// the store has lost its records, or has them again in another epoch.
func (g *gate) conflict(ctx context.Context, e Epoch, err error) error {
	key := Key{StoreSlot, epochField(e)}
	for {
		recs, rerr := g.Slots.Get(ctx, key, Key{StoreSlot, self})
		if rerr != nil {
			return rerr
		}
		if recs[0].Value != nil {
			return err
		}
		if serr := g.c.sameStore(ctx); serr != nil {
			if g.follow(ctx, e) {
				return err // read again, in the new epoch
			}
			return serr
		}
		// The store is of a program that knew no such field.
		_, aerr := g.Slots.Apply(ctx, StoreSlot, []If{{Field: self, Version: recs[1].Version}}, []Set{{key.Field, []byte{}}})
		if !errors.Is(aerr, ErrConflict) {
			return errors.Join(aerr, err)
		}
	}
}

// follow waits until this process has followed the store into another epoch and
// its names are back; false if that takes too long.
func (g *gate) follow(ctx context.Context, e Epoch) bool {
	moved := func() bool { info := g.c.store.Load(); return info != nil && info.Epoch != e }
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for began := time.Now(); !moved() && !g.c.Held(); {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
		if time.Since(began) > time.Second { // whoever restores was told at once
			return false
		}
	}
	return g.await(ctx) == nil && moved()
}

// withOrigins returns the changes of a directory as they are written into a
// store that was lost before.
func withOrigins(e Epoch, sets []Set) ([]Set, error) {
	out := make([]Set, 0, 2*len(sets))
	for _, s := range sets {
		switch {
		case !isName(s.Field):
			out = append(out, s)
		case s.Value != nil:
			out = append(out, Set{s.Field, stamped(s.Value, e)})
		default:
			b, err := marshalGone(Origin{Epoch: e}, time.Now())
			if err != nil {
				return nil, err
			}
			out = append(out, s, Set{goneField + s.Field, b})
		}
	}
	return out, nil
}

// dir returns the directory that a slot is of.
func (s Slot) dir() (InodeID, bool) {
	id, ok := strings.CutPrefix(string(s), "d/")
	if !ok || len(id) != 16 {
		return 0, false
	}
	var n uint64
	for _, c := range []byte(id) {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return InodeID(n), true
}

// await waits for the end of a restoration.
func (g *gate) await(ctx context.Context) error {
	g.mu.Lock()
	released := g.released
	g.mu.Unlock()
	if released == nil {
		return nil
	}
	t := time.NewTimer(holdPatience)
	defer t.Stop()
	select {
	case <-released:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, errRestoring, ctx.Err())
	case <-t.C:
		return fmt.Errorf("%w: %w", ErrUnavailable, errRestoring)
	}
}

// errRestoring comes with ErrOtherStore: what the store lacks may be on its
// way back.
var errRestoring = errors.New("the names are being brought back into the store")

// Hold begins a restoration: until Release the store counts as out of reach,
// as far as it is asked for what there is not, and changes of names wait.
func (c *Catalog) Hold() {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if c.gate.released == nil {
		c.gate.released = make(chan struct{})
	}
}

// Release ends a restoration.
func (c *Catalog) Release() {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if c.gate.released != nil {
		close(c.gate.released)
		c.gate.released = nil
	}
}

// Held reports whether a restoration is under way here.
func (c *Catalog) Held() bool {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	return c.gate.released != nil
}
