package tcp

import (
	"context"
	"sync"
)

// gates bounds what is in flight to each address. A gate lives while somebody
// is at it.
type gates struct {
	width int

	mu     sync.Mutex
	byAddr map[string]*gate
}

type gate struct {
	slots chan struct{}
	users int // in or waiting; guarded by gates.mu
}

// enter waits for a place until ctx ends. leave is called exactly once.
func (g *gates) enter(ctx context.Context, addr string) (leave func(), err error) {
	t := g.come(addr)
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots; g.part(addr, t) }, nil
	case <-ctx.Done():
		g.part(addr, t)
		return nil, context.Cause(ctx)
	}
}

func (g *gates) come(addr string) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.byAddr[addr]
	if t == nil {
		if g.byAddr == nil {
			g.byAddr = make(map[string]*gate)
		}
		t = &gate{slots: make(chan struct{}, g.width)}
		g.byAddr[addr] = t
	}
	t.users++
	return t
}

func (g *gates) part(addr string, t *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(g.byAddr, addr)
	}
}
