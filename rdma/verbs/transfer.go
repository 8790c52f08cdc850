package verbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// READs that nobody wants any more may go on for abandonBound, and as long as
// one of their connection ends every abandonAfter: then it is broken, and with
// it all others on it.
const (
	abandonAfter = 250 * time.Millisecond
	abandonBound = 2 * time.Second
)

// errSilent: READs were given up, and none of their connection had ended since
// they began.
var errSilent = errors.New("given up with no READ ended")

// read runs READs, and returns when none of them touches memory any more.
func (l *link) read(ctx context.Context, reads []ib.Read) error {
	if len(reads) == 0 {
		return nil
	}
	t := &transfer{done: make(chan struct{}), open: true, began: l.good.Load()}
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	l.last++
	id := l.last
	l.transfers[id] = t
	l.mu.Unlock()
	for i := range reads {
		reads[i].ID = id
	}
	posted := l.post(ctx, t, reads)
	l.mu.Lock()
	t.open = false
	l.settle(id, t)
	l.mu.Unlock()
	waited := l.wait(ctx, t)
	if t.err != nil && !errors.Is(waited, errSilent) {
		return t.err
	}
	if posted != nil && waited == nil {
		return posted
	}
	return waited
}

// post posts READs as there is room.
func (l *link) post(ctx context.Context, t *transfer, reads []ib.Read) error {
	stall := time.NewTimer(l.c.cfg.StallTimeout)
	defer stall.Stop()
	for len(reads) > 0 {
		select {
		case l.room <- struct{}{}:
		case <-l.broken:
			return l.cause()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stall.C:
			return l.stalled()
		}
		n := 1
		for n < len(reads) && l.enterRoom() {
			n++
		}
		l.mu.Lock()
		t.left += n
		l.mu.Unlock()
		taken, err := l.queue.Read(reads[:n])
		if err != nil {
			l.mu.Lock()
			t.left -= n - taken
			l.mu.Unlock()
			for range n - taken {
				l.leaveRoom()
			}
			err = fmt.Errorf("%w: %w", errLink, err)
			l.fail(err)
			return err
		}
		reads = reads[n:]
		stall.Reset(l.c.cfg.StallTimeout)
	}
	return nil
}

func (l *link) enterRoom() bool {
	select {
	case l.room <- struct{}{}:
		return true
	default:
		return false
	}
}

// leaveRoom never waits: were READs miscounted, it would for ever.
func (l *link) leaveRoom() {
	select {
	case <-l.room:
	default:
	}
}

// stalled breaks the link.
func (l *link) stalled() error {
	err := fmt.Errorf("%w for %v", chunk.ErrStalled, l.c.cfg.StallTimeout)
	l.fail(err)
	return err
}

// wait waits for the end of a transfer: soon after ctx, or a stall, by breaking
// the link.
func (l *link) wait(ctx context.Context, t *transfer) error {
	stall := time.NewTimer(l.c.cfg.StallTimeout)
	defer stall.Stop()
	seen := t.progress.Load()
	for {
		select {
		case <-t.done:
			return nil
		case <-ctx.Done():
			return l.abandon(ctx, t)
		case <-stall.C:
		}
		if now := t.progress.Load(); now != seen {
			seen = now
			stall.Reset(l.c.cfg.StallTimeout)
			continue
		}
		err := l.stalled()
		<-t.done
		return err
	}
}

func (l *link) abandon(ctx context.Context, t *transfer) error {
	cause := context.Cause(ctx)
	bound, patience := time.NewTimer(abandonBound), time.NewTimer(abandonAfter)
	defer bound.Stop()
	defer patience.Stop()
	for {
		seen := l.good.Load()
		select {
		case <-t.done:
			return cause
		case <-patience.C:
			if l.good.Load() != seen {
				patience.Reset(abandonAfter)
				continue
			}
		case <-bound.C:
		}
		if l.good.Load() == t.began {
			cause = fmt.Errorf("%w: %w", errSilent, cause)
		}
		l.fail(fmt.Errorf("%w: given up", errLink))
		<-t.done
		return cause
	}
}
