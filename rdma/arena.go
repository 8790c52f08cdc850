package rdma

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
)

// DefaultMemory is the memory for fetched blocks of one transport, in bytes.
const DefaultMemory = 96 << 20

// hugePage is the alignment that lets the kernel back slots with huge pages.
const hugePage = 2 << 20

// ErrTooLarge: a request that would not fit even an empty arena.
var ErrTooLarge = errors.New("more than the memory for blocks holds")

// Slot is memory lent by an Arena: len(Data) bytes as asked for.
type Slot struct {
	Data  []byte
	unit  int32
	order int8
}

// Arena lends out parts of one piece of memory, which lies outside the Go
// heap: its size is a bound, and it neither delays nor feeds the collector.
// Slots are powers of two from 4 KiB to 64 MiB; those returned last are lent
// first, so that little memory stays warm. Safe for concurrent use.
type Arena struct {
	size   int64
	mapped []byte // as mapped
	mem    []byte // the aligned part that is lent

	mu      sync.Mutex
	buddy   *buddy
	inUse   int64     // bytes of slots lent
	waiting list.List // of *waiter, first come first served
	closed  bool
}

type waiter struct {
	sizes []int64
	ready chan struct{} // closed once slots or err is set; nil when never queued
	slots []Slot
	err   error
	place *list.Element
}

// NewArena maps size bytes (rounded down to 4 KiB; 0 means DefaultMemory). No
// page is touched before it is lent.
func NewArena(size int64) (*Arena, error) {
	if size == 0 {
		size = DefaultMemory
	}
	units := size / slotUnit
	if units < 1 || units > 1<<30 {
		return nil, fmt.Errorf("memory for blocks of %d bytes is out of range", size)
	}
	size = units * slotUnit
	m, err := unix.Mmap(-1, 0, int(size)+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for blocks: %w", size, err)
	}
	_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // kernels without it are slower, not wrong
	skip := -uintptr(unsafe.Pointer(&m[0])) & (hugePage - 1)
	return &Arena{size: size, mapped: m, mem: m[skip : int64(skip)+size], buddy: newBuddy(int32(units))}, nil
}

// Size returns the bytes there are to lend.
func (a *Arena) Size() int64 { return a.size }

// InUse returns the bytes of slots that are lent.
func (a *Arena) InUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inUse
}

// Memory returns all of the arena, for a transport that registers it. It must
// not be used after the last slot came back to a closed arena.
func (a *Arena) Memory() []byte { return a.mem }

// Acquire lends a slot of each size, all of them or none, and waits for them
// in the order of the calls until ctx ends. Errors: ErrTooLarge,
// chunk.ErrClosed, the context's.
func (a *Arena) Acquire(ctx context.Context, sizes ...int64) ([]Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := a.enter(sizes)
	if err != nil || w.ready == nil {
		return w.slots, err
	}
	select {
	case <-w.ready:
		return w.slots, w.err
	case <-ctx.Done():
		a.leave(w)
		return nil, ctx.Err()
	}
}

// enter takes the slots at once when nobody waits for any, else queues.
func (a *Arena) enter(sizes []int64) (*waiter, error) {
	w := &waiter{sizes: sizes}
	for _, n := range sizes {
		if n <= 0 || n > slotUnit<<maxOrder {
			return w, fmt.Errorf("%w: a block of %d bytes", ErrTooLarge, n)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return w, chunk.ErrClosed
	}
	if a.waiting.Len() == 0 {
		if s, ok := a.take(sizes); ok {
			w.slots = s
			return w, nil
		}
		if a.inUse == 0 {
			return w, a.tooLarge(sizes)
		}
	}
	w.ready = make(chan struct{})
	w.place = a.waiting.PushBack(w)
	return w, nil
}

// leave ends a wait; slots granted meanwhile go back.
func (a *Arena) leave(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-w.ready:
		a.give(w.slots)
	default:
		a.waiting.Remove(w.place)
	}
	a.grant()
	a.unmap()
}

// Release takes slots back. Each slot is released exactly once, also after
// Close.
func (a *Arena) Release(slots ...Slot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.give(slots)
	a.grant()
	a.unmap()
}

// Close refuses further calls of Acquire, and those that wait. The memory
// goes when the last slot is back.
func (a *Arena) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for e := a.waiting.Front(); e != nil; e = a.waiting.Front() {
		w := a.waiting.Remove(e).(*waiter)
		w.err = chunk.ErrClosed
		close(w.ready)
	}
	a.unmap()
}

// take finds a slot of each size, the largest first: in an empty arena that
// finds them whenever they fit.
func (a *Arena) take(sizes []int64) ([]Slot, bool) {
	slots := make([]Slot, len(sizes))
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return orderOf(sizes[j]) - orderOf(sizes[i]) })
	for done, i := range order {
		o := orderOf(sizes[i])
		u, ok := a.buddy.take(o)
		if !ok {
			for _, j := range order[:done] {
				a.buddy.give(slots[j].unit, int(slots[j].order))
			}
			return nil, false
		}
		off := int64(u) * slotUnit
		slots[i] = Slot{Data: a.mem[off : off+sizes[i] : off+sizes[i]], unit: u, order: int8(o)}
	}
	for _, s := range slots {
		a.inUse += slotUnit << s.order
	}
	return slots, true
}

func (a *Arena) give(slots []Slot) {
	for _, s := range slots {
		a.buddy.give(s.unit, int(s.order))
		a.inUse -= slotUnit << s.order
	}
}

// grant serves those who wait, until one does not fit.
func (a *Arena) grant() {
	for e := a.waiting.Front(); e != nil; e = a.waiting.Front() {
		w := e.Value.(*waiter)
		s, ok := a.take(w.sizes)
		if !ok && a.inUse > 0 {
			return
		}
		if !ok {
			w.err = a.tooLarge(w.sizes)
		}
		w.slots = s
		a.waiting.Remove(e)
		close(w.ready)
	}
}

func (a *Arena) tooLarge(sizes []int64) error {
	sum := int64(0)
	for _, n := range sizes {
		sum += slotUnit << orderOf(n)
	}
	return fmt.Errorf("%w: %d blocks need %d bytes of %d", ErrTooLarge, len(sizes), sum, a.size)
}

func (a *Arena) unmap() {
	if !a.closed || a.inUse > 0 || a.mapped == nil {
		return
	}
	_ = unix.Munmap(a.mapped) // fails only for what was never mapped
	a.mapped, a.mem = nil, nil
}

// Offset returns where in Memory a slot begins.
func (a *Arena) Offset(s Slot) int64 { return int64(s.unit) * slotUnit }
