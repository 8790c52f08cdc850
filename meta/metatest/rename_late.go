package metatest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// Hooked is a store as a process sees it whose every change a test comes
// before: it may wait, or answer in the store's place.
type Hooked struct {
	meta.Slots
	// Before is called with the fields that a change is about to set. An
	// error is the change's.
	Before func(slot meta.Slot, sets []meta.Set) error
	// Read comes before a read, with the slots that it asks. Nil: nothing.
	Read func(keys []meta.Key)

	mu     sync.Mutex
	leases []meta.Lease
}

var _ meta.Slots = (*Hooked)(nil)

// Apply implements meta.Slots.
func (h *Hooked) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	if err := h.Before(slot, sets); err != nil {
		return 0, err
	}
	return h.Slots.Apply(ctx, slot, conds, sets)
}

// Get implements meta.Slots.
func (h *Hooked) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	if h.Read != nil {
		h.Read(keys)
	}
	return h.Slots.Get(ctx, keys...)
}

// Lease implements meta.Slots.
func (h *Hooked) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	l, err := h.Slots.Lease(ctx, key, value, ttl, conds)
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leases = append(h.leases, l)
	}
	return l, err
}

// expire lets all leases run out.
func (h *Hooked) expire(t *testing.T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leases {
		require.NoError(t, l.Release(t.Context()))
	}
	h.leases = nil
}

// isTx reports whether a field is a decision about a move.
func isTx(sets []meta.Set) bool { return strings.Contains(sets[0].Field, "/") }

// testLateMover: of two nodes that move x into y and y into x, the first stalls
// before one of its changes until its lock has run out, and the second begins
// and stalls before one of its own, while the first goes on. N5
//
// A third of the pairs is tried here, all of them by RunStorms.
func testLateMover(t *testing.T, s meta.Slots) {
	lateMovers(t, s, func(first, second int) bool { return (first+second)%3 == 0 })
}

func testLateMovers(t *testing.T, s meta.Slots) {
	lateMovers(t, s, func(int, int) bool { return true })
}

func lateMovers(t *testing.T, s meta.Slots, want func(first, second int) bool) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	// The changes of a move: its journal, the open decision, the mark, the
	// decision with the entry, the parent, the source, the decision's end.
	const changes = 7
	for first := range changes {
		for second := range changes {
			if !want(first, second) {
				continue
			}
			t.Run(fmt.Sprint("first stalls at ", first, ", second at ", second), func(t *testing.T) {
				top := mkdir(t, c, meta.RootDir, fmt.Sprint(first, second)).Inode
				x, y := mkdir(t, c, top, "x").Inode, mkdir(t, c, top, "y").Inode
				reached, on := [2]chan struct{}{}, [2]chan struct{}{}
				hooked, errs, done := [2]*Hooked{}, [2]error{}, [2]chan struct{}{}
				for i, stop := range []int{first, second} {
					reached[i], on[i], done[i] = make(chan struct{}), make(chan struct{}), make(chan struct{})
					n := 0
					hooked[i] = &Hooked{Slots: s, Before: func(meta.Slot, []meta.Set) error {
						if n++; n-1 == stop {
							close(reached[i])
							<-on[i]
						}
						return nil
					}}
				}
				move := func(i int, name string, into meta.InodeID) {
					go func() {
						defer close(done[i])
						_, errs[i] = meta.NewCatalog(hooked[i], meta.Options{}).Rename(t.Context(),
							meta.Place{Dir: top, Name: name}, meta.Place{Dir: into, Name: name}, meta.RenameOptions{})
					}()
				}
				stalled := func(i int) { // or it ended before it came so far
					select {
					case <-reached[i]:
					case <-done[i]:
					}
				}
				move(0, "x", y)
				stalled(0)
				hooked[0].expire(t)
				move(1, "y", x)
				stalled(1)
				hooked[1].expire(t)
				close(on[0])
				<-done[0]
				close(on[1])
				<-done[1]

				for _, err := range errs {
					if !errors.Is(err, meta.ErrLoop) && !errors.Is(err, meta.ErrNotFound) {
						require.NoError(t, err)
					}
				}
				checkBelow(t, c, top, x, y)
			})
		}
	}
}

// checkBelow checks that just these directories lie below top, each with the
// parent it is found in.
func checkBelow(t *testing.T, c *meta.Catalog, top meta.InodeID, dirs ...meta.InodeID) {
	t.Helper()
	for _, d := range append(dirs, top) {
		list(t, c, d) // finishes what is under way
	}
	found := map[meta.InodeID]bool{}
	var walk func(dir meta.InodeID)
	walk = func(dir meta.InodeID) {
		for _, e := range list(t, c, dir) {
			require.False(t, found[e.Inode], "%q is in two places", e.Name)
			found[e.Inode] = true
			d, err := c.Dir(t.Context(), e.Inode)
			require.NoError(t, err)
			require.Equal(t, dir, d.Parent)
			walk(e.Inode)
		}
	}
	walk(top)
	require.Len(t, found, len(dirs))
}

// testLateAdopt: who finishes the move of a directory and stalls before it says
// so to the directory does not undo what another move has said since.
func testLateAdopt(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	a, b := mkdir(t, c, meta.RootDir, "a").Inode, mkdir(t, c, meta.RootDir, "b").Inode
	x := mkdir(t, c, a, "x")
	here, there := meta.Place{Dir: a, Name: "x"}, meta.Place{Dir: b, Name: "x"}

	// The mover is killed when the move is decided.
	m := NewMortal(s, 5, false)
	_, err := meta.NewCatalog(m, meta.Options{}).Rename(t.Context(), here, there, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.NoError(t, m.Expire(t.Context()))

	reached, on, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	late := &Hooked{Slots: s}
	late.Before = func(slot meta.Slot, sets []meta.Set) error {
		if sets[0].Field == "." {
			close(reached)
			<-on
		}
		return nil
	}
	go func() {
		defer close(done)
		_, _ = meta.NewCatalog(late, meta.Options{}).Lookup(t.Context(), a, "x")
	}()
	<-reached
	_, err = c.Rename(t.Context(), there, here, meta.RenameOptions{})
	require.NoError(t, err)
	close(on)
	<-done
	d, err := c.Dir(t.Context(), x.Inode)
	require.NoError(t, err)
	require.Equal(t, a, d.Parent)
}

// testLostAnswer: a mover that is not told that its entry is marked leaves the
// decision to those who find the mark, even if they are killed then.
func testLostAnswer(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	d := mkdir(t, c, meta.RootDir, "d").Inode
	f := link(t, c, meta.RootDir, File("f", 1))
	from, to := meta.Place{Dir: meta.RootDir, Name: "f"}, meta.Place{Dir: d, Name: "f"}
	n := 0
	h := &Hooked{Slots: s}
	h.Before = func(slot meta.Slot, sets []meta.Set) error {
		if n++; n != 3 { // the reference, the open decision, the mark
			return nil
		}
		require.False(t, isTx(sets))
		at, err := c.Lookup(t.Context(), from.Dir, from.Name)
		require.NoError(t, err)
		_, err = s.Apply(t.Context(), slot, []meta.If{{Field: from.Name, Version: at.Version}}, sets)
		require.NoError(t, err)
		killed := meta.NewCatalog(NewMortal(s, 1, false), meta.Options{})
		_, err = killed.Lookup(t.Context(), from.Dir, from.Name)
		require.ErrorIs(t, err, meta.ErrUnavailable)
		return fmt.Errorf("%w: no answer", meta.ErrUnavailable)
	}
	_, err := meta.NewCatalog(h, meta.Options{}).Rename(t.Context(), from, to, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrUnavailable)
	_, ok := has(t, c, from)
	require.False(t, ok)
	e, ok := has(t, c, to)
	require.True(t, ok)
	require.Equal(t, f.Inode, e.Inode)
}

// testReferSlips: a name that changes between the reading of the references and
// the look at the names is found all the same.
func testReferSlips(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	f := link(t, c, meta.RootDir, File("f", 1))
	n := 0
	h := &Hooked{Slots: s, Read: func([]meta.Key) {
		if n++; n == 2 {
			_, err := c.Rename(t.Context(), meta.Place{Dir: meta.RootDir, Name: "f"}, meta.Place{Dir: meta.RootDir, Name: "g"}, meta.RenameOptions{})
			require.NoError(t, err)
		}
	}}
	yes, err := meta.NewCatalog(h, meta.Options{}).Referenced(t.Context(), f.Object.ID, meta.Reference{Dir: meta.RootDir, Name: "f"})
	require.NoError(t, err)
	require.True(t, yes)

	// An emptied store knows nothing, which is no answer.
	info := Join(t, c)
	other := meta.NewCatalog(s, meta.Options{})
	info.Epoch[0]++
	other.UseStore(info)
	_, err = other.Referenced(t.Context(), chunk.NewObjectID(), meta.Reference{})
	require.ErrorIs(t, err, meta.ErrUnavailable)
	down := NewFaults(s)
	down.Down()
	_, err = meta.NewCatalog(down, meta.Options{}).Referenced(t.Context(), f.Object.ID, meta.Reference{})
	require.ErrorIs(t, err, meta.ErrUnavailable)
}
