package node

import (
	"context"
	"time"
)

const (
	// reliefGrace takes the place of collectGrace while somebody waits for
	// room: those who have a file open elsewhere hear within a moment that its
	// name has gone, and say that they read it.
	reliefGrace = 2 * time.Second
	// reliefPause is the least time between two reliefs when the first found
	// nothing: who waits, waits for it.
	reliefPause = 200 * time.Millisecond
	// reliefBound is how long one that nobody waits for goes on.
	reliefBound = 10 * time.Second
)

// relief makes room in a full cache by collecting sooner: one at a time, and
// what one finds serves all who asked before it began.
type relief struct {
	turn chan struct{} // holds a token while one looks; guards the fields below
	// fruitless is when the last that found nothing began, and ended when it
	// ended.
	fruitless, ended time.Time

	wanted chan struct{} // one is wanted that nobody waits for
}

func newRelief() *relief {
	return &relief{turn: make(chan struct{}, 1), wanted: make(chan struct{}, 1)}
}

// want asks for a relief and does not block.
func (r *relief) want() {
	select {
	case r.wanted <- struct{}{}:
	default:
	}
}

// relieve removes what has no name any more and stays for the grace alone. It
// returns true once something was removed since it was called, and false if
// nothing will be soon, or ctx ends.
func (n *Node) relieve(ctx context.Context) bool {
	r := n.relief
	if n.cfg.ReadOnly {
		return false
	}
	asked, before := time.Now(), n.collection.freed.Load()
	select { // at once, if there is nothing to wait for
	case r.turn <- struct{}{}:
	default:
		select {
		case r.turn <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	defer func() { <-r.turn }()
	switch {
	case n.collection.freed.Load() != before:
		return true
	case r.fruitless.After(asked):
		return false
	}
	if !sleep(ctx, time.Until(r.ended.Add(reliefPause))) {
		return false
	}
	began := time.Now()
	if n.collectUntilFreed(ctx) {
		return true
	}
	r.fruitless, r.ended = began, time.Now()
	return false
}

// collectUntilFreed makes a pass, and another when what the first found is due.
func (n *Node) collectUntilFreed(ctx context.Context) bool {
	for {
		p, err := n.look(ctx, reliefGrace, false)
		if p != nil && p.reply.Removed > 0 {
			n.log.Info("removed what had no name any more: the cache is full", "objects", p.reply.Removed, "bytes", p.reply.FreedBytes)
			return true
		}
		if err != nil {
			n.log.Debug("nothing collected", "err", err)
			return false
		}
		if p.due.IsZero() || !sleep(ctx, time.Until(p.due)) {
			return false
		}
	}
}

// sleep waits; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil // both may have come to pass
	case <-ctx.Done():
		return false
	}
}

// runRelief makes room ahead of those who would have to wait for it, until ctx
// ends.
func (n *Node) runRelief(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.relief.wanted:
		}
		bound, cancel := context.WithTimeout(ctx, reliefBound)
		freed := n.relieve(bound)
		cancel()
		pause := collectPause
		if freed {
			pause = reliefPause
		}
		if !sleep(ctx, pause) {
			return nil
		}
	}
}
