package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/rdma"
)

// mtu is how much of a READ moves at once, in bytes. In between, a connection
// may go to error and memory may change.
const mtu = 1 << 10

var (
	errPair         = errors.New("connection is in error")
	errRemoteAccess = errors.New("remote access error")
)

// pair is one connection between a reader and a provider: a queue pair. Once
// in error it stays there.
type pair struct {
	provider *Provider
	ready    context.Context // ends when in error
	fail     context.CancelFunc
	dead     <-chan struct{} // of ready
}

func newPair(p *Provider) *pair {
	q := &pair{provider: p}
	q.ready, q.fail = context.WithCancel(p.life)
	q.dead = q.ready.Done()
	return q
}

func (q *pair) failed() bool { return q.ready.Err() != nil }

// read is a one-sided READ: it copies registered memory of the provider to
// dst. Nothing of the provider runs but, in its stead, the network card: key
// and bounds are checked, and a violation moves the connection to error.
func (q *pair) read(d descriptor, dst []byte) (n int, err error) {
	nic := q.provider.nic
	for n < len(dst) {
		if f := nic.hook(); f != nil {
			f(q, d, n)
		}
		m := min(mtu, len(dst)-n)
		if err := nic.copyOut(q, d.addr+uint64(n), d.key, dst[n:n+m]); err != nil {
			q.fail()
			return n, err
		}
		n += m
	}
	return n, nil
}

// nic is a provider's network card: the one thing of a provider that a READ
// meets. It owns the registered memory; the lock stands for the memory bus.
type nic struct {
	arena *rdma.Arena

	mu   sync.RWMutex
	mem  []byte // nil: nothing is registered
	base uint64 // address of mem[0], as others see it
	key  uint32
	on   func(q *pair, d descriptor, done int) // for faults
}

func newNIC(arena *rdma.Arena) *nic {
	return &nic{arena: arena, mem: arena.Memory(), base: 0x7f00_0000_0000, key: 1}
}

func (c *nic) hook() func(*pair, descriptor, int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.on
}

func (c *nic) setHook(f func(*pair, descriptor, int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = f
}

func (c *nic) copyOut(q *pair, addr uint64, key uint32, dst []byte) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if q.failed() {
		return errPair
	}
	off := addr - c.base
	if key != c.key || addr < c.base || off > uint64(len(c.mem)) || uint64(len(dst)) > uint64(len(c.mem))-off {
		return fmt.Errorf("%w: %d bytes at %#x by key %d", errRemoteAccess, len(dst), addr, key)
	}
	copy(dst, c.mem[off:])
	return nil
}

// addressOf returns where others see a slot, and by which key.
func (c *nic) addressOf(s rdma.Slot) (uint64, uint32) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.base + uint64(c.arena.Offset(s)), c.key
}

// stop moves a connection to error. No READ over it touches the memory once
// it returns.
func (c *nic) stop(q *pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.fail()
}

// write changes a slot as the provider's processor would.
func (c *nic) write(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

// register makes every key handed out before stale.
func (c *nic) register() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key++
}

// deregister ends all access.
func (c *nic) deregister() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mem = nil
}
