package meta

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// The states of a store, as a View sees it.
const (
	StateStarting = "starting" // not asked yet
	StateUp       = "up"
	StateDown     = "down"
)

// State is how a View and its store get on.
type State struct {
	State string
	Since time.Time
	Err   error  // why it is down
	Stale uint64 // answers given from memory while the store was down
}

// health is a circuit breaker: once a call found the store out of reach, known
// names are answered from memory without asking, and one probe at a time finds
// out when it is back.
type health struct {
	patience time.Duration // from the begin of an outage, how long others wait for its end
	probe    func(context.Context) error
	spawn    func(func()) bool
	ctx      context.Context // the View's lifetime
	stale    atomic.Uint64

	mu     sync.Mutex
	state  string
	since  time.Time
	err    error
	lastOK time.Time
	up     chan struct{} // closed when the store is back
}

// probePause is the pause between two probes of a store that is down.
const probePause = 250 * time.Millisecond

// status returns the state of now.
func (h *health) status() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return State{State: h.state, Since: h.since, Err: h.err, Stale: h.stale.Load()}
}

func (h *health) down() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == StateDown
}

// report takes how a call of the store ended. One that ended well says little of
// a store that is down: it may have been asked before, or of another store.
func (h *health) report(err error) { h.take(err, false) }

// take takes how a call ended; probed: it was a probe.
func (h *health) take(err error, probed bool) {
	switch {
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrDenied):
		h.setDown(err)
	case err == nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrFormat):
		h.setUp(probed)
	}
}

func (h *health) setUp(probed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == StateDown && !probed {
		return
	}
	h.lastOK = time.Now()
	if h.state == StateUp {
		return
	}
	if h.state == StateDown {
		close(h.up)
	}
	h.state, h.since, h.err = StateUp, h.lastOK, nil
}

func (h *health) setDown(err error) {
	h.mu.Lock()
	h.err = err
	first := h.state != StateDown && h.ctx.Err() == nil
	if first {
		h.state, h.since, h.up = StateDown, time.Now(), make(chan struct{})
	}
	h.mu.Unlock()
	if first {
		h.spawn(h.probeUntilUp)
	}
}

func (h *health) probeUntilUp() {
	for h.down() {
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(probePause):
		}
		h.take(h.probe(h.ctx), true)
	}
}

// await returns at once if the store is not known to be down. Else it waits
// for the store to come back, until patience has passed since the outage
// began: then it returns why the store is down.
func (h *health) await(ctx context.Context) error {
	h.mu.Lock()
	state, up, err := h.state, h.up, h.err
	left := h.patience - time.Since(h.since)
	h.mu.Unlock()
	if state != StateDown {
		return nil
	}
	if left <= 0 {
		return err
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.ctx.Done():
		return err
	case <-t.C:
		return err
	}
}

// back waits, without a bound, until the store is not known to be down, or ctx
// ends.
func (h *health) back(ctx context.Context) {
	for ctx.Err() == nil {
		h.mu.Lock()
		down, up := h.state == StateDown, h.up
		h.mu.Unlock()
		if !down {
			return
		}
		select {
		case <-up:
		case <-ctx.Done():
		}
	}
}

// idle reports whether nothing has been heard of the store for d.
func (h *health) idle(d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state != StateDown && time.Since(h.lastOK) >= d
}
