package verbs

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

var errBudget = errors.New("the memory that may be registered is all in use")

// budget is a cache of registrations that pins no more than a number of bytes,
// and holds no more than a number of registrations.
// Those in use stay; of the others, the one used longest ago goes first. It
// calls make and close with no lock held. Safe for concurrent use.
type budget[K comparable, R any] struct {
	most  int64 // bytes
	many  int   // registrations
	close func(R)
	now   func() time.Time

	mu     sync.Mutex
	shut   bool
	bytes  int64
	count  int // those that are open, or being made or closed
	made   uint64
	byKey  map[K]*registered[K, R]
	idle   list.List // of *registered without users, the one used longest ago first
	ending sync.WaitGroup
}

// registered is one entry. Whoever got it calls done exactly once.
type registered[K comparable, R any] struct {
	key   K
	size  int64         // guarded by budget.mu; what it counts for
	count int           // guarded by budget.mu; 1, or 0 once its room is another's
	ready chan struct{} // closed once R or err is set
	R     R
	err   error
	made  time.Time // set before ready is closed

	// Guarded by budget.mu, too.
	users int
	gone  bool // not in byKey any more: closed with its last user
	since time.Time
	place *list.Element // in idle
}

func newBudget[K comparable, R any](most int64, many int, closeOne func(R), now func() time.Time) *budget[K, R] {
	return &budget[K, R]{most: most, many: many, close: closeOne, now: now, byKey: make(map[K]*registered[K, R])}
}

// get returns the registration of a key, made by one of those who ask for it
// while the others wait. size is what it counts for, in bytes.
func (b *budget[K, R]) get(ctx context.Context, key K, size int64, make func() (R, error)) (*registered[K, R], error) {
	r, mine, evicted, err := b.enter(key, size)
	for _, x := range evicted {
		b.end(x)
	}
	if err != nil {
		return nil, err
	}
	if mine {
		r.R, r.err = make()
		r.made = b.now()
		close(r.ready)
		if r.err != nil {
			b.done(r)
			return nil, r.err
		}
		b.mu.Lock()
		b.made++
		b.mu.Unlock()
		return r, nil
	}
	select {
	case <-r.ready:
	case <-ctx.Done():
		b.done(r)
		return nil, context.Cause(ctx)
	}
	if r.err != nil {
		b.done(r)
		return nil, r.err
	}
	return r, nil
}

func (b *budget[K, R]) enter(key K, size int64) (r *registered[K, R], mine bool, evicted []*registered[K, R], err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return nil, false, nil, chunk.ErrClosed
	}
	if r = b.byKey[key]; r != nil {
		b.use(r)
		return r, false, nil, nil
	}
	if size > b.most {
		return nil, false, nil, fmt.Errorf("%w: %d bytes wanted of %d", errBudget, size, b.most)
	}
	for !b.fits(size) && b.idle.Len() > 0 {
		x := b.idle.Front().Value.(*registered[K, R])
		b.remove(x)
		b.bytes -= x.size // the room is ours: it is closed before anything is made in it
		b.count -= x.count
		x.size, x.count = 0, 0
		evicted = append(evicted, x)
	}
	if !b.fits(size) {
		return nil, false, evicted, fmt.Errorf("%w: %d bytes wanted, %d of %d used, in %d registrations of %d", errBudget, size, b.bytes, b.most, b.count, b.many)
	}
	r = &registered[K, R]{key: key, size: size, count: 1, ready: make(chan struct{}), users: 1}
	b.byKey[key] = r
	b.bytes += size
	b.count++
	b.ending.Add(1)
	return r, true, evicted, nil
}

// spare says whether a registration is there, or can be made and leave half of
// all to others.
func (b *budget[K, R]) spare(key K, size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byKey[key] != nil || b.bytes+size <= b.most/2 && b.count < b.many/2
}

// fits says whether there is room for one more. Called with mu held.
func (b *budget[K, R]) fits(size int64) bool { return b.bytes+size <= b.most && b.count < b.many }

func (b *budget[K, R]) use(r *registered[K, R]) {
	r.users++
	if r.place != nil {
		b.idle.Remove(r.place)
		r.place = nil
	}
}

// done gives one use of a registration back.
func (b *budget[K, R]) done(r *registered[K, R]) {
	b.mu.Lock()
	r.users--
	failed := false
	select {
	case <-r.ready:
		failed = r.err != nil
	default:
	}
	if (failed || b.shut) && !r.gone {
		b.remove(r)
	}
	if r.users > 0 {
		b.mu.Unlock()
		return
	}
	if !r.gone {
		r.since = b.now()
		r.place = b.idle.PushBack(r)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	b.end(r)
}

// remove takes an entry out; whoever finds it without users ends it.
func (b *budget[K, R]) remove(r *registered[K, R]) {
	r.gone = true
	if b.byKey[r.key] == r {
		delete(b.byKey, r.key)
	}
	if r.place != nil {
		b.idle.Remove(r.place)
		r.place = nil
	}
}

// end closes what nobody uses and nobody can find any more. Unless it made
// room for another, it counts until then.
func (b *budget[K, R]) end(r *registered[K, R]) {
	if r.err == nil {
		b.close(r.R)
	}
	b.mu.Lock()
	b.bytes -= r.size
	b.count -= r.count
	b.mu.Unlock()
	b.ending.Done()
}

// drop has a registration be made anew by the next who asks, if it is of some
// age.
func (b *budget[K, R]) drop(r *registered[K, R], age time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.gone && b.now().Sub(r.made) >= age {
		b.remove(r) // the caller still uses it, and will call done
	}
}

// sweep closes what was not used for longer than age.
func (b *budget[K, R]) sweep(age time.Duration) {
	b.mu.Lock()
	var old []*registered[K, R]
	for e := b.idle.Front(); e != nil; e = b.idle.Front() {
		r := e.Value.(*registered[K, R])
		if b.now().Sub(r.since) <= age {
			break
		}
		b.remove(r)
		old = append(old, r)
	}
	b.mu.Unlock()
	for _, r := range old {
		b.end(r)
	}
}

// stop refuses further calls of get, and returns when everything is closed:
// its users must have been told to end.
func (b *budget[K, R]) stop() {
	b.mu.Lock()
	b.shut = true
	var all []*registered[K, R]
	for e := b.idle.Front(); e != nil; e = b.idle.Front() {
		r := e.Value.(*registered[K, R])
		b.remove(r)
		all = append(all, r)
	}
	b.mu.Unlock()
	for _, r := range all {
		b.end(r)
	}
	b.ending.Wait()
}

// stats returns the registrations made so far, and the bytes that count now.
func (b *budget[K, R]) stats() (made uint64, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made, b.bytes
}
