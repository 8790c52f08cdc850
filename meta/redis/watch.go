package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/meta"
)

const (
	// watchPause is how long a watch that broke waits before the next try.
	watchPause = 200 * time.Millisecond
	// newsMax is how many changes wait for a slow watch: then it reads the log.
	newsMax = 256
	// tailPage is how many changes are read from the log at once.
	tailPage = 200
)

// watch is one Watch under way.
type watch struct {
	s       *Store
	slot    meta.Slot
	channel string
	since   string // version after the last change told, in digits
	on      func([]meta.Event)

	woken chan struct{} // 1: there is news
	mu    sync.Mutex
	news  news
}

// news is what a feed has for a watch.
type news struct {
	items  []string
	look   bool // read the log: something may be missing in items
	broken bool // the feed tells no more
}

func (n *news) add(item string) {
	if len(n.items) >= newsMax {
		n.items, n.look = nil, true
	}
	n.items = append(n.items, item)
}

// tell changes the news and wakes the watch.
func (w *watch) tell(fn func(*news)) {
	w.mu.Lock()
	fn(&w.news)
	w.mu.Unlock()
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *watch) take() news {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.news
	w.news = news{}
	return n
}

// Watch implements meta.Slots. Changes come with the word that there is one;
// what is missing, at first and after a break, is read from the slot's log.
func (s *Store) Watch(ctx context.Context, slot meta.Slot, since uint64, on func([]meta.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	w := &watch{s: s, slot: slot, channel: s.key(slot) + s.at(), since: digits(since), on: on, woken: make(chan struct{}, 1)}
	for {
		err := w.run(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, meta.ErrGap), errors.Is(err, meta.ErrFormat):
			return err
		}
		s.servers.stale(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

var errBroken = errors.New("the subscription broke")

// run watches through one feed until it breaks.
func (w *watch) run(ctx context.Context) error {
	f, err := w.s.join(ctx, w)
	if err != nil {
		return err
	}
	defer f.remove(w)
	ends := time.NewTimer(time.Hour) // of the lease that ends first
	ends.Stop()
	defer ends.Stop()
	for {
		look := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ends.C:
			look = true
		case <-w.woken:
		}
		n := w.take()
		if n.broken {
			return errBroken
		}
		missed, err := w.follow(ctx, n.items)
		if err != nil {
			return err
		}
		if look || n.look || missed {
			wait, err := w.catchUp(ctx)
			if err != nil {
				return err
			}
			if wait >= 0 {
				ends.Reset(wait + time.Millisecond)
			}
		}
	}
}

// follow tells the changes that follow on one another. missed says that there
// are more in the log, or leases to look after.
func (w *watch) follow(ctx context.Context, items []string) (missed bool, err error) {
	for _, raw := range items {
		it, err := parseItem(w.slot, raw)
		if err != nil {
			return false, err
		}
		if it.version <= w.since {
			continue
		}
		if it.before != w.since || it.cut {
			return true, nil
		}
		missed = missed || it.leased
		if err := w.pass(ctx, it); err != nil {
			return false, err
		}
	}
	return missed, nil
}

// pass tells one change.
func (w *watch) pass(ctx context.Context, it item) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.since = it.version
	if len(it.events) > 0 {
		w.on(it.events)
	}
	return nil
}

// catchUp tells what the log has, and returns how long it is until the next
// lease of the slot ends; negative: there is none.
func (w *watch) catchUp(ctx context.Context) (time.Duration, error) {
	for {
		c := &call{script: w.s.scripts.tail, keys: w.s.keys(w.slot), args: []any{w.s.publishTo(), w.since, tailPage}}
		if err := w.s.write(ctx, c); err != nil { // it may take records out
			return 0, err
		}
		answer, err := c.list(3)
		if err != nil {
			return 0, err
		}
		version, _ := answer[0].(string)
		if number(answer[2]) == 1 {
			return 0, fmt.Errorf("watch %s since %s, at %s: %w", w.slot, w.since, version, meta.ErrGap)
		}
		for _, raw := range answer[3:] {
			text, _ := raw.(string)
			it, err := parseItem(w.slot, text)
			if err == nil && it.before != w.since {
				err = fmt.Errorf("watch %s since %s: %w", w.slot, w.since, meta.ErrGap)
			}
			if err == nil {
				err = w.pass(ctx, it)
			}
			if err != nil {
				return 0, err
			}
		}
		if version <= w.since {
			wait, _ := answer[1].(int64)
			return time.Duration(wait) * time.Millisecond, nil
		}
	}
}
