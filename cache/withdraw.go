package cache

import (
	"context"

	"github.com/p2pfs/p2pfs/chunk"
)

// withdrawIfLast takes back the provider record of an entry's set if nothing
// else of it is here. A registry that does not answer holds up no eviction for
// long: the record is a hint, and the debt is paid in Run. It returns whether it
// was taken back, so that withdrawn is to be called once the entry is gone.
func (c *Cache) withdrawIfLast(ctx context.Context, e *entry) bool {
	if c.cfg.Withdraw == nil {
		return false
	}
	c.mu.Lock()
	set := e.obj.Set
	last := e.known && c.sets[set] == 1
	wait := c.cfg.Now().Before(c.owedUntil)
	c.mu.Unlock()
	if !last || c.places.hasSet(set) {
		return false
	}
	if wait {
		c.owe(set, nil)
		return false
	}
	if err := c.withdraw(ctx, set); err != nil {
		c.owe(set, err)
		return false
	}
	return true
}

// withdrawn is called when what was the last of a set is gone, after the record
// was taken back: something else of the set may have come meanwhile, and whoever
// fetched it thought that the record stands.
func (c *Cache) withdrawn(ctx context.Context, set chunk.SetID) error {
	if c.cfg.Withdrawn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	return c.cfg.Withdrawn(ctx, set)
}

// HoldsSet reports whether anything of a set is here, of what is known so far.
func (c *Cache) HoldsSet(set chunk.SetID) bool {
	c.mu.Lock()
	here := c.sets[set] > 0
	c.mu.Unlock()
	return here || c.places.hasSet(set)
}

func (c *Cache) withdraw(ctx context.Context, set chunk.SetID) error {
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	return c.cfg.Withdraw(ctx, set)
}

// owe remembers a set whose record may not say what is here.
func (c *Cache) owe(set chunk.SetID, err error) {
	c.mu.Lock()
	c.owed[set] = struct{}{}
	if err != nil {
		c.owedUntil = c.cfg.Now().Add(withdrawPause)
	}
	c.mu.Unlock()
	if err != nil {
		c.log.Warn("provider record not brought up to date, will try again", "set", set, "err", err)
	}
}

// payOwed brings the records up to date that could not be.
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
		delete(c.owed, s)
		c.mu.Unlock()
		var err error
		if !c.HoldsSet(s) {
			err = c.withdraw(ctx, s)
		}
		if err == nil {
			err = c.withdrawn(ctx, s)
		}
		if err != nil {
			c.owe(s, err)
			return
		}
	}
}
