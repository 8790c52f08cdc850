package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// leftoverAfter is how long a decision about a move must have been seen
	// before its mover counts as gone.
	leftoverAfter = time.Minute
	// leftoversMax bounds how many decisions are remembered.
	leftoversMax = 1024
)

// leftovers remembers when this process first saw a decision about a move, so
// that those of movers that died go in the end. The zero value is ready.
type leftovers struct {
	mu   sync.Mutex
	seen map[Key]time.Time
}

// old reports whether a decision has been seen for long.
func (l *leftovers) old(k Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, ok := l.seen[k]
	if !ok {
		if l.seen == nil || len(l.seen) >= leftoversMax {
			l.seen = make(map[Key]time.Time)
		}
		l.seen[k] = time.Now()
		return false
	}
	if time.Since(first) < leftoverAfter {
		return false
	}
	delete(l.seen, k)
	return true
}

// leftover takes away a decision that a listing came across, if its mover is
// long gone. What cannot be done now is done by a later listing.
func (c *Catalog) leftover(ctx context.Context, dir InodeID, r Record) {
	if !strings.HasPrefix(r.Field, txPrefix) || c.readOnly() || !c.leftovers.old(Key{r.Slot, r.Field}) {
		return
	}
	if err := c.clearDecision(ctx, dir, r); err != nil {
		c.log.Debug("decision about a move stays", "dir", fmt.Sprintf("%016x", uint64(dir)), "err", err)
	}
}

// clearDecision ends the move that a decision is about, wherever it stands,
// and takes the decision away. A mover that is still there finds its move done
// or aborted.
func (c *Catalog) clearDecision(ctx context.Context, dir InodeID, r Record) error {
	d, err := unmarshalDecision(r.Value)
	if err != nil {
		return err
	}
	src, mv, err := c.underWay(ctx, d.from)
	if err != nil {
		return err
	}
	conds := []If{{Field: r.Field, Version: r.Version}}
	if mv != nil && mv.to.Dir == dir && mv.tx.field() == r.Field {
		if err := c.settle(ctx, d.from, src, mv); err != nil {
			return err
		}
		conds = nil // it is decided, and its source is as it should be
	}
	_, err = c.slots.Apply(ctx, dirSlot(dir), conds, []Set{{Field: r.Field}})
	if errors.Is(err, ErrConflict) {
		return nil // its mover went on
	}
	return err
}
