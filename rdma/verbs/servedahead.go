package verbs

import (
	"context"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// answerAhead begins to answer an ask ahead. Other answers wait for these, unless
// the last ones took long: then blocks are looked at for the first time.
func (l *served) answerAhead() func(context.Context, ask) {
	if l.slow.Load() {
		return l.lendAhead
	}
	l.out.begin()
	return func(ctx context.Context, a ask) {
		defer l.out.end()
		l.lendAhead(ctx, a)
	}
}

// lendAhead grants leases on the blocks that can be lent at no cost to others,
// in order, up to the first that cannot.
func (l *served) lendAhead(ctx context.Context, a ask) {
	start := time.Now()
	var some []message
	defer func() {
		if len(some) > 0 {
			l.out.add(soon, some...)
		}
		l.slow.Store(time.Since(start) > slowAhead)
	}()
	for _, r := range a.refs {
		l.mu.Lock()
		full := l.aheads >= maxAhead
		l.mu.Unlock()
		if full || ctx.Err() != nil || !l.h.crowds.alone(r.Object, l.from) {
			return
		}
		x := &lent{ahead: []chunk.BlockRef{r}}
		p, err := l.lendOne(ctx, r, x)
		if err != nil {
			_ = l.h.release(x) // who wants the block asks for it, and hears why
			return
		}
		g, ok := l.grant(grant{id: a.id, ahead: true, blocks: []place{p}}, x)
		if !ok {
			return
		}
		if some = append(some, g); len(some) == someAhead {
			l.out.add(soon, some...)
			some = nil
		}
	}
}
