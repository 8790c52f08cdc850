package cache

import (
	"context"
	"time"
)

// Run does the work that nobody waits for, until ctx or Close ends it: it reads
// the maps of what was here at the start, flushes, keeps the budget, closes
// what is idle. It returns nil.
func (c *Cache) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.runs.Add(1)
	c.mu.Unlock()
	defer c.runs.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	if c.scan(ctx) != nil { // only ctx's end
		return nil
	}
	c.places.sweep(ctx)
	tick := time.NewTicker(min(c.cfg.SyncEvery/5+1, time.Second))
	defer tick.Stop()
	for {
		c.tend(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-c.kick:
		case <-tick.C:
		}
	}
}

// tend does one round of Run.
func (c *Cache) tend(ctx context.Context) {
	c.syncDirty(ctx, c.cfg.SyncEvery)
	if limit := c.cfg.Size; limit > 0 {
		c.makeRoom(nil, c.used.Load()-limit, true)
	}
	for _, r := range c.roots {
		if r.usable() {
			c.makeRoom(r, r.shortOf(0), true)
		}
	}
	old := c.cfg.Now().Add(-idleTime)
	c.closeOld(old)
	c.closeIdle(c.cfg.OpenFiles, false)
	c.places.closeOld(old)
	c.payOwed(ctx)
}
