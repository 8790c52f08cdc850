package cache

import (
	"context"
	"errors"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

const (
	// roomWait is how long a write waits for room that kept objects may give
	// back.
	roomWait = 5 * time.Second
	// littleRoom is the part of the budget, one in so many, that counts as
	// hardly any.
	littleRoom = 32
)

// withRoom does what needs room on a root for a staged file. If there is none, it is done
// again whenever kept objects have gone, for a bounded time: it must leave the
// file as it was when it fails. Staged.mu is not held.
func (c *Cache) withRoom(ctx context.Context, r *root, do func() error) error {
	err := do()
	if c.cfg.Relieve == nil || r == nil || !noRoom(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	for noRoom(err) && r.usable() && c.cfg.Relieve(ctx) {
		err = do()
	}
	return err
}

func noRoom(err error) bool {
	return errors.Is(err, chunk.ErrNoSpace) || errors.Is(err, unix.ENOSPC)
}

// short tells that somebody found no room, or hardly any.
func (c *Cache) short() {
	if c.cfg.Short != nil {
		c.cfg.Short()
	}
}

// lookAhead tells so before anybody has to wait for it.
func (c *Cache) lookAhead(used, limit int64) {
	little := limit / littleRoom
	if c.cfg.Short == nil || used <= limit-little {
		return
	}
	c.mu.Lock()
	left := limit - used + c.evictable
	c.mu.Unlock()
	if left < little {
		c.cfg.Short()
	}
}
