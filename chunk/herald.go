package chunk

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// herald tells the registry what this node provides, and keeps trying while
// it does not answer. Readers and swarms never wait for it. complete speaks of
// the object that was fetched: of a set of many, others may be absent.
type herald struct {
	ctx      context.Context // the engine's
	registry Registry
	log      *slog.Logger
	wg       sync.WaitGroup

	mu      sync.Mutex
	pending map[SetID]bool // complete
	running bool
}

func newHerald(ctx context.Context, r Registry, log *slog.Logger) *herald {
	return &herald{ctx: ctx, registry: r, log: log, pending: map[SetID]bool{}}
}

// tell queues an announcement.
func (h *herald) tell(set SetID, complete bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending[set] = h.pending[set] || complete
	if h.running || h.ctx.Err() != nil {
		return
	}
	h.running = true
	h.wg.Go(h.run)
}

// wait returns when the herald has ended, after its context has.
func (h *herald) wait() { h.wg.Wait() }

// run announces until nothing is pending.
func (h *herald) run() {
	tries := 0
	for {
		set, complete, ok := h.next()
		if !ok {
			return
		}
		if err := h.announce(set, complete); err != nil {
			if tries == 0 {
				h.log.Warn("announcing a set failed, trying again", "set", set.String(), "err", err)
			}
			h.again(set, complete)
			if !sleep(h.ctx, backoff(tries)) {
				return
			}
			tries++
			continue
		}
		tries = 0
	}
}

func (h *herald) announce(set SetID, complete bool) error {
	ctx, cancel := context.WithTimeout(h.ctx, askTimeout)
	defer cancel()
	return h.registry.Announce(ctx, set, complete)
}

func (h *herald) next() (set SetID, complete, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for set, complete := range h.pending {
		delete(h.pending, set)
		return set, complete, true
	}
	h.running = false
	return set, false, false
}

func (h *herald) again(set SetID, complete bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending[set] = h.pending[set] || complete
}

// sleep waits for d; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
