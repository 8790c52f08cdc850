package metatest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

// Faults is a store that fails on demand. The zero value over a store does not
// fail.
type Faults struct {
	meta.Slots

	mu    sync.Mutex
	down  bool
	hang  bool
	fail  string        // the calls that fail although the store is up
	up    chan struct{} // closed when watches may go on
	calls map[string]int
	gate  func(ctx context.Context, op string) // called before each read is sent
	lose  func(sets []meta.Set) bool           // picks the changes whose answers are lost
}

var _ meta.Slots = (*Faults)(nil)

// NewFaults returns a store over another.
func NewFaults(s meta.Slots) *Faults {
	return &Faults{Slots: s, calls: make(map[string]int)}
}

// Down makes every call fail at once, and holds back what watches would tell.
func (f *Faults) Down() { f.set(true, false) }

// Hang makes every call wait for the end of its context, as a store does that
// is stopped.
func (f *Faults) Hang() { f.set(true, true) }

// Up ends the outage.
func (f *Faults) Up() { f.set(false, false) }

func (f *Faults) set(down, hang bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if down && !f.down {
		f.up = make(chan struct{})
	}
	if !down && f.down {
		close(f.up)
	}
	f.down, f.hang = down, hang
}

// Gate calls fn before each call of the store, with the method's name.
func (f *Faults) Gate(fn func(ctx context.Context, op string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = fn
}

// Fail makes the calls of one method fail; an empty one ends it.
func (f *Faults) Fail(op string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = op
}

// Lose loses the answers of changes of a field: they are made, and reported as
// if the store could not be reached. An empty field ends it.
func (f *Faults) Lose(field string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = nil
	if field != "" {
		f.lose = func(sets []meta.Set) bool {
			return slices.ContainsFunc(sets, func(s meta.Set) bool { return s.Field == field })
		}
	}
}

// Calls returns how often a method was called.
func (f *Faults) Calls(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// enter is called before each call.
func (f *Faults) enter(ctx context.Context, op string) error {
	f.mu.Lock()
	f.calls[op]++
	down, hang, gate := f.down || f.fail == op, f.hang, f.gate
	f.mu.Unlock()
	if gate != nil {
		gate(ctx, op)
	}
	if !down {
		return nil
	}
	if hang {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		<-ctx.Done()
	}
	return fmt.Errorf("%w: made so", meta.ErrUnavailable)
}

// Get implements meta.Slots.
func (f *Faults) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	if err := f.enter(ctx, "Get"); err != nil {
		return nil, err
	}
	return f.Slots.Get(ctx, keys...)
}

// List implements meta.Slots.
func (f *Faults) List(ctx context.Context, slot meta.Slot, next string, limit int) (meta.Page, error) {
	if err := f.enter(ctx, "List"); err != nil {
		return meta.Page{}, err
	}
	return f.Slots.List(ctx, slot, next, limit)
}

// Version implements meta.Slots.
func (f *Faults) Version(ctx context.Context, slot meta.Slot) (uint64, error) {
	if err := f.enter(ctx, "Version"); err != nil {
		return 0, err
	}
	return f.Slots.Version(ctx, slot)
}

// Apply implements meta.Slots.
func (f *Faults) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	if err := f.enter(ctx, "Apply"); err != nil {
		return 0, err
	}
	v, err := f.Slots.Apply(ctx, slot, conds, sets)
	f.mu.Lock()
	lose := f.lose
	f.mu.Unlock()
	if lose != nil && lose(sets) {
		return 0, fmt.Errorf("%w: made, and not answered", meta.ErrUnavailable)
	}
	return v, err
}

// Watch implements meta.Slots: events wait for the end of an outage.
func (f *Faults) Watch(ctx context.Context, slot meta.Slot, since uint64, on func([]meta.Event)) error {
	f.mu.Lock()
	f.calls["Watch"]++
	f.mu.Unlock()
	return f.Slots.Watch(ctx, slot, since, func(evs []meta.Event) {
		for {
			f.mu.Lock()
			down, up := f.down, f.up
			f.mu.Unlock()
			if !down {
				break
			}
			select {
			case <-up:
			case <-ctx.Done():
				return
			}
		}
		on(evs)
	})
}

// Lease implements meta.Slots.
func (f *Faults) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	if err := f.enter(ctx, "Lease"); err != nil {
		return nil, err
	}
	l, err := f.Slots.Lease(ctx, key, value, ttl, conds)
	if err != nil {
		return nil, err
	}
	return &faultyLease{f, l}, nil
}

type faultyLease struct {
	f *Faults
	l meta.Lease
}

func (l *faultyLease) Renew(ctx context.Context) error {
	if err := l.f.enter(ctx, "Renew"); err != nil {
		return err
	}
	return l.l.Renew(ctx)
}

func (l *faultyLease) Release(ctx context.Context) error {
	if err := l.f.enter(ctx, "Release"); err != nil {
		return err
	}
	return l.l.Release(ctx)
}
