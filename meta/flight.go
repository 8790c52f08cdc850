package meta

import (
	"context"
	"errors"
	"sync"
)

// flights coalesces reads of one thing without ever handing out an answer
// that is older than the question. A read that has been sent may have been
// answered before the caller's question was asked, so a caller never joins the
// running read: it joins the next one, which begins when the running one has
// ended and serves all who came meanwhile. At most one read of a thing runs.
type flights[K comparable, V any] struct {
	// spawn runs a function in a goroutine that the owner waits for; false
	// if the owner is closed.
	spawn func(func()) bool

	mu    sync.Mutex
	pairs map[K]*pair[V]
}

// pair is the running read of a thing and the one that waits for its end.
type pair[V any] struct {
	next *flight[V] // nil: nobody waits
}

// flight is one read. val and err are set before done is closed.
type flight[V any] struct {
	fn   func() (V, error)
	done chan struct{}
	val  V
	err  error
}

func newFlights[K comparable, V any](spawn func(func()) bool) *flights[K, V] {
	return &flights[K, V]{spawn: spawn, pairs: make(map[K]*pair[V])}
}

// do returns the answer of a read that begins after the call of do. ctx ends
// the caller's wait, not the read; fn bounds itself.
func (f *flights[K, V]) do(ctx context.Context, key K, fn func() (V, error)) (V, error) {
	fl, err := f.join(key, fn)
	if err != nil {
		return *new(V), err
	}
	select {
	case <-fl.done:
		return fl.val, fl.err
	case <-ctx.Done():
		return *new(V), ctx.Err()
	}
}

func (f *flights[K, V]) join(key K, fn func() (V, error)) (*flight[V], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pairs[key]
	if p != nil && p.next != nil {
		return p.next, nil
	}
	fl := &flight[V]{fn: fn, done: make(chan struct{})}
	if p != nil {
		p.next = fl
		return fl, nil
	}
	if !f.spawn(func() { f.run(key, fl) }) {
		return nil, ErrUnavailable
	}
	f.pairs[key] = &pair[V]{}
	return fl, nil
}

// run makes a read and those that wait for it, one after the other.
func (f *flights[K, V]) run(key K, fl *flight[V]) {
	for fl != nil {
		fl.val, fl.err = fl.fn()
		next := f.takeNext(key)
		close(fl.done)
		// The store was out of reach until this moment: who waited for it
		// has waited long enough.
		for next != nil && errors.Is(fl.err, ErrUnavailable) {
			next.err = fl.err
			close(next.done)
			next = f.takeNext(key)
		}
		fl = next
	}
}

// takeNext makes the waiting read the running one, and returns it.
func (f *flights[K, V]) takeNext(key K) *flight[V] {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pairs[key]
	next := p.next
	p.next = nil
	if next == nil {
		delete(f.pairs, key)
	}
	return next
}
