package cache

import (
	"context"

	"github.com/p2pfs/p2pfs/chunk"
)

// withdrawIfLast takes back the provider record of an entry's set if nothing
// else of it is here. A registry that does not answer holds up no eviction for
// long: the record is a hint, and the debt is paid in Run.
func (c *Cache) withdrawIfLast(ctx context.Context, e *entry) {
	if c.cfg.Withdraw == nil {
		return
	}
	c.mu.Lock()
	set := e.obj.Set
	last := e.known && c.sets[set] == 1
	wait := c.cfg.Now().Before(c.owedUntil)
	c.mu.Unlock()
	if !last || c.places.hasSet(set) {
		return
	}
	if wait {
		c.owe(set, nil)
		return
	}
	if err := c.withdraw(ctx, set); err != nil {
		c.owe(set, err)
	}
}

func (c *Cache) withdraw(ctx context.Context, set chunk.SetID) error {
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	return c.cfg.Withdraw(ctx, set)
}

// owe remembers a withdrawal that could not be made.
func (c *Cache) owe(set chunk.SetID, err error) {
	c.mu.Lock()
	c.owed[set] = struct{}{}
	if err != nil {
		c.owedUntil = c.cfg.Now().Add(withdrawPause)
	}
	c.mu.Unlock()
	if err != nil {
		c.log.Warn("provider record not withdrawn, will try again", "set", set, "err", err)
	}
}

// payOwed tries the withdrawals that failed, but for sets that are here again.
func (c *Cache) payOwed(ctx context.Context) {
	c.mu.Lock()
	if c.cfg.Now().Before(c.owedUntil) || len(c.owed) == 0 {
		c.mu.Unlock()
		return
	}
	sets := make([]chunk.SetID, 0, len(c.owed))
	for s := range c.owed {
		sets = append(sets, s)
	}
	c.mu.Unlock()
	for _, s := range sets {
		c.mu.Lock()
		here := c.sets[s] > 0
		c.mu.Unlock()
		if !here && !c.places.hasSet(s) {
			if err := c.withdraw(ctx, s); err != nil {
				c.owe(s, err)
				return
			}
		}
		c.mu.Lock()
		delete(c.owed, s)
		c.mu.Unlock()
	}
}
