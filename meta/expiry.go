package meta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Names with a time to live. The end stands in the entry, and every reader goes by
// its own clock: a file or symlink whose time is over is not there, whether its
// record is or not. So it does not matter who takes the record away, or how late:
// who wrote it does, who comes across it, and who wants the name.

const (
	// ClockSlack is how far the clocks of nodes may be apart: the record of a name
	// is taken away so much later than it ends to be there.
	ClockSlack = 2 * time.Second
	// metAfter is how long, at most, who comes across the record of a name whose
	// time is over leaves it to others.
	metAfter = 10 * time.Second
	// expiryRetry is how long after a failure a directory is looked at again.
	expiryRetry = 15 * time.Second
	// timedDirsMax bounds the directories that are remembered to hold such names.
	timedDirsMax = 100_000
)

// Ended reports whether the time of a file or symlink is over: there is no such
// name any more.
func (e *Entry) Ended(now time.Time) bool { return e.Kind != KindDir && e.over(now) }

// over reports whether the time of an entry of any kind is over.
func (e *Entry) over(now time.Time) bool { return e.ExpiresNs != 0 && now.UnixNano() >= e.ExpiresNs }

// Expiry is when a name ends that is given now and lives for ttl; 0, for ever, if
// ttl is 0.
func Expiry(ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return time.Now().Add(ttl).UnixNano()
}

// lasting returns the entries whose time is not over. It does not change the slice.
func lasting(entries []Entry) []Entry {
	now := time.Now()
	ended := func(e Entry) bool { return e.Ended(now) }
	for i := range entries {
		if entries[i].Ended(now) {
			return slices.DeleteFunc(slices.Clone(entries), ended)
		}
	}
	return entries
}

// timed remembers which directories hold names whose time ends, and when they are
// to be looked through. The zero value remembers nothing, but is not ready.
type timed struct {
	wake chan struct{}

	mu sync.Mutex
	at map[InodeID]time.Time
}

// note says that a directory is to be looked through at a time.
func (t *timed) note(dir InodeID, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, known := t.at[dir]
	if known && !at.Before(was) || !known && len(t.at) >= timedDirsMax {
		return
	}
	t.at[dir] = at
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// due takes out the directories whose time has come, and returns when the next
// one's does; zero: there is none.
func (t *timed) due(now time.Time) (dirs []InodeID, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for dir, at := range t.at {
		switch {
		case !at.After(now):
			dirs = append(dirs, dir)
			delete(t.at, dir)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return dirs, next
}

// Timed notes that a directory holds a name that ends at a time, so that
// RunExpiry takes the record away.
func (c *Catalog) Timed(dir InodeID, expiresNs int64) {
	if expiresNs != 0 {
		c.timed.note(dir, time.Unix(0, expiresNs).Add(ClockSlack))
	}
}

// met notes that somebody came across a name whose time is over. Those who wrote
// it are given the time to take it away.
func (c *Catalog) met(dir InodeID) {
	c.timed.note(dir, time.Now().Add(ClockSlack+rand.N(metAfter)))
}

// RunExpiry takes away the names whose time is over, in the directories that this
// process gave such names in or came across them in, until ctx ends. removed, if
// not nil, is told after some were.
func (c *Catalog) RunExpiry(ctx context.Context, removed func()) {
	for {
		dirs, next := c.timed.due(time.Now())
		for _, dir := range dirs {
			n, err := c.Expire(ctx, dir)
			if n > 0 && removed != nil {
				removed()
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil && !errors.Is(err, ErrNotFound) {
				c.log.Debug("names whose time is over stay for now", "dir", fmt.Sprintf("%016x", uint64(dir)), "err", err)
				c.timed.note(dir, time.Now().Add(expiryRetry))
			}
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.timed.wake:
		case <-timer:
		}
	}
}

// Expire takes the names out of a directory whose time was over ClockSlack ago,
// and directories below it that had a time and are empty. It returns how many.
func (c *Catalog) Expire(ctx context.Context, dir InodeID) (removed int, err error) {
	now := time.Now().Add(-ClockSlack)
	r := &treeRemoval{c: c, want: func(string, Entry) bool { return true }, removed: func(string, Entry) {}}
	err = c.eachRecord(ctx, dir, func(page []Entry) error {
		files := page[:0]
		var dirs []Entry
		for _, e := range page {
			switch {
			case !e.over(now):
				c.Timed(dir, e.ExpiresNs)
			case e.Kind == KindDir:
				dirs = append(dirs, e)
			default:
				files = append(files, e)
			}
		}
		if err := r.entries(ctx, dir, "", files); err != nil {
			return err
		}
		for _, e := range dirs {
			n, err := c.expireDir(ctx, dir, e)
			if removed += n; err != nil {
				return err
			}
		}
		return nil
	})
	removed += int(r.n.Files)
	if err != nil {
		return removed, fmt.Errorf("take away names whose time is over in directory %016x: %w", uint64(dir), err)
	}
	return removed, nil
}

// expireDir takes away what is over in a directory whose own time is, and then
// itself if nothing is left.
func (c *Catalog) expireDir(ctx context.Context, parent InodeID, e Entry) (removed int, err error) {
	if removed, err = c.Expire(ctx, e.Inode); err != nil {
		return removed, err
	}
	_, err = c.Rmdir(ctx, parent, e.Name)
	switch {
	case err == nil:
		removed++
	case errors.Is(err, ErrNotEmpty), errors.Is(err, ErrNotFound), errors.Is(err, ErrConflict), errors.Is(err, ErrNotDir):
		err = nil // in use, or another did it
	}
	return removed, err
}

// eachRecord calls fn with the entries of a directory as the records say, those
// whose time is over included. Of a directory that was removed there are none.
func (c *Catalog) eachRecord(ctx context.Context, dir InodeID, fn func([]Entry) error) error {
	next := ""
	for first := true; first || next != ""; first = false {
		p, err := c.slots.List(ctx, dirSlot(dir), next, listPage)
		if err != nil {
			return err
		}
		entries := make([]Entry, 0, len(p.Records))
		for _, r := range p.Records {
			if !isName(r.Field) {
				continue
			}
			if e, mv, err := c.moving(r); err == nil && mv == nil {
				entries = append(entries, e)
			}
		}
		if err := fn(entries); err != nil {
			return err
		}
		next = p.Next
	}
	return nil
}

// end takes away the name r, whose time is over, for one who wants to do
// something with it.
func (c *Catalog) end(ctx context.Context, dir InodeID, r Record) error {
	_, err := c.slots.Apply(ctx, dirSlot(dir), []If{{Field: r.Field, Version: r.Version}}, []Set{{Field: r.Field}})
	if err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("take away %q, whose time is over: %w", r.Field, err)
	}
	return nil
}
