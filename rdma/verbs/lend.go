package verbs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// lend collects in x what a lease on blocks holds, and says where they lie.
func (l *served) lend(ctx context.Context, refs []chunk.BlockRef, x *lent) ([]place, error) {
	places := make([]place, len(refs))
	for i, ref := range refs {
		var err error
		if places[i], err = l.lendOne(ctx, ref, x); err != nil {
			return nil, fmt.Errorf("lend block %d of %s: %w", ref.Index, ref.Object.Short(), err)
		}
	}
	return places, nil
}

func (l *served) lendOne(ctx context.Context, ref chunk.BlockRef, x *lent) (place, error) {
	b, err := l.h.cfg.Source.Block(ctx, ref.Object, ref.Index)
	if err != nil {
		return place{}, err
	}
	x.blocks = append(x.blocks, b)
	p := place{object: ref.Object, index: ref.Index, len: b.Len, sum: b.Sum, zero: b.Zero, fixed: b.Fixed}
	if b.Len <= 0 || b.Len > chunk.MaxBlockSize || !b.Zero && (b.File == nil || b.Off < 0) {
		return place{}, fmt.Errorf("impossible block of %d bytes", b.Len)
	}
	if b.Zero {
		return p, nil
	}
	x.bytes += b.Len
	ref.Len = b.Len
	if l.h.cfg.Admit != nil && b.Len > smallBlock && x.ahead == nil {
		done, err := l.h.cfg.Admit(ctx, l.from, ref)
		if err != nil {
			return place{}, err
		}
		x.done = append(x.done, done)
	}
	span, file, err := regionOf(b, l.dev.region)
	if err != nil {
		return place{}, err
	}
	key := regionKey{device: l.dev.Name(), object: ref.Object, file: file, span: span}
	if x.ahead != nil && !l.h.regions.spare(key, charge(span)) {
		return place{}, errBudget
	}
	r, err := l.h.regions.get(ctx, key, charge(span), func() (region, error) { return newRegion(l.dev, b.File, span) })
	if err != nil {
		return place{}, err
	}
	x.regions = append(x.regions, r)
	p.addr = ib.Address(r.R.mapped) + uint64(b.Off-span.Off)
	p.key = r.R.memory.RKey()
	return p, nil
}

// refuse answers an ask that gets nothing. The text says nothing of local
// paths.
func (l *served) refuse(id uint32, err error) {
	v := verdictOf(id, err)
	level := slog.LevelWarn
	switch v.code {
	case codeBusy:
		level = slog.LevelDebug - 1
	case codeNotHeld, codeClosed, codeFull:
		level = slog.LevelDebug
		l.h.cfg.Counters.ServeFailed()
	default:
		l.h.cfg.Counters.ServeFailed()
	}
	l.h.cfg.Log.Log(context.Background(), level, "cannot lend a block", "peer", l.from.Short(), "err", err)
	l.out.add(soon, v)
}

// verdictOf says to a reader what an error means for it.
func verdictOf(id uint32, err error) verdict {
	v := verdict{id: id}
	var busy *chunk.Busy
	switch {
	case err == nil:
	case errors.As(err, &busy):
		v.code, v.retry, v.sending = codeBusy, busy.Retry, busy.Sending
	case errors.Is(err, chunk.ErrNotHeld):
		v.code = codeNotHeld
	case errors.Is(err, chunk.ErrSourceChanged):
		v.code = codeChanged
	case errors.Is(err, chunk.ErrDamaged):
		v.code = codeDamaged
	case errors.Is(err, chunk.ErrRefused):
		v.code, v.text = codeRefused, "the ask makes no sense"
	case errors.Is(err, errBudget):
		v.code, v.text = codeFull, "all that may be registered is in use"
	case errors.Is(err, errRegister):
		v.code, v.text = codeMemory, "the block cannot be registered"
	case errors.Is(err, chunk.ErrClosed), errors.Is(err, context.Canceled):
		v.code = codeClosed
	default:
		v.code, v.text = codeFailed, "reading the block failed"
	}
	return v
}
