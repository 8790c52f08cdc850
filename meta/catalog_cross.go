package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// across moves the entry to another directory: the steps are told at settle.
// ErrConflict: nothing was moved, and it may be tried again.
func (r *renaming) across(ctx context.Context) (Moved, error) {
	mv := &move{to: r.to, tx: newTx(), version: r.dst.Version}
	if r.lock != nil {
		if err := r.lock.note(ctx, dirMove{mv.tx, r.from, r.to.Dir}); err != nil {
			r.lost(ctx, err)
			return Moved{}, err
		}
	}
	dec, err := r.open(ctx, mv)
	if err != nil {
		return Moved{}, err
	}
	src, err := r.mark(ctx, mv)
	if err != nil {
		r.close(ctx, mv, If{Field: dec.Field, Version: dec.Version}) // it may have been marked
		return Moved{}, err
	}
	m, err := r.finish(ctx, src, mv, dec)
	if err == nil || errors.Is(err, ErrConflict) {
		r.close(ctx, mv)
	}
	return m, err
}

// open writes the open decision and returns its record.
func (r *renaming) open(ctx context.Context, mv *move) (Record, error) {
	d := decision{from: r.from, outcome: moveOpen}
	b, err := marshalDecision(d, nil)
	if err != nil {
		return Record{}, err
	}
	field, slot := mv.tx.field(), dirSlot(r.to.Dir)
	at, err := r.c.slots.Apply(ctx, slot, []If{{Field: self, Present: true}, {Field: field, Absent: true}}, []Set{{field, b}})
	if errors.Is(err, ErrConflict) {
		err = fmt.Errorf("the directory to move to was removed: %w", ErrNotFound)
	}
	return Record{Slot: slot, Field: field, Value: b, Version: at}, err
}

// mark says at the source that the entry is under way, once nothing stands
// against the move any more. From here on others may finish it.
func (r *renaming) mark(ctx context.Context, mv *move) (Record, error) {
	if r.lock != nil {
		err := r.lock.held(ctx)
		r.lost(ctx, err)
		if err == nil {
			err = r.c.checkLoop(ctx, r.to.Dir, r.entry.Inode)
		}
		if err != nil {
			return Record{}, err
		}
	}
	if err := r.clear(ctx); err != nil {
		return Record{}, err
	}
	mv.version = r.dst.Version
	b, err := rewriteMove(r.src.Value, mv, 0)
	if err != nil {
		return Record{}, err
	}
	at, err := r.c.slots.Apply(ctx, r.src.Slot, []If{{Field: r.from.Name, Version: r.src.Version}}, []Set{{r.from.Name, b}})
	return Record{Slot: r.src.Slot, Field: r.from.Name, Value: b, Version: at}, err
}

// lost lets go of the lock if err says that it is lost.
func (r *renaming) lost(ctx context.Context, err error) {
	if errors.Is(err, ErrConflict) {
		r.unlock(ctx)
	}
}

// finish is settle for the mover, which knows that the decision was open.
func (r *renaming) finish(ctx context.Context, src Record, mv *move, dec Record) (Moved, error) {
	now := time.Now().UnixNano()
	at, err := r.c.write(ctx, src, mv, dec, decision{r.from, moveDone}, now)
	v := verdict{moveDone, at}
	byUs := err == nil
	if errors.Is(err, ErrConflict) {
		v, err = r.c.decide(ctx, src, mv)
	}
	if err != nil {
		return Moved{}, err
	}
	goneAt, err := r.c.leave(ctx, r.from, src, mv, v.outcome)
	if err != nil {
		return Moved{}, err
	}
	if byUs && goneAt != 0 {
		e := r.entry
		e.Name, e.CtimeNs, e.Version = r.to.Name, now, at
		return Moved{Entry: e, Replaced: r.over, GoneAt: goneAt}, nil
	}
	return r.told(ctx, v, goneAt)
}

// told finds out how a move ended that others had a part in.
func (r *renaming) told(ctx context.Context, v verdict, goneAt uint64) (Moved, error) {
	// The decision may be gone, too, when the entry tells.
	if v.outcome != moveDone && (v.at != 0 || goneAt != 0) {
		return Moved{}, ErrConflict
	}
	recs, err := r.c.slots.Get(ctx, Key{dirSlot(r.to.Dir), r.to.Name})
	if err != nil {
		return Moved{}, err
	}
	m := Moved{Entry: r.entry, Replaced: r.over, GoneAt: goneAt}
	m.Entry.Name, m.Entry.Version = r.to.Name, v.at
	there := false
	if recs[0].Value != nil {
		e, err := r.c.entry(recs[0])
		if there = err == nil && e.Inode == r.entry.Inode; there {
			m.Entry = e
		}
	}
	if v.outcome != moveDone && !there {
		return Moved{}, ErrConflict
	}
	if goneAt == 0 {
		m.GoneAt, err = r.gone(ctx)
	}
	return m, err
}

// gone returns a version of the source's directory at which the name had gone;
// 0 if another has it.
func (r *renaming) gone(ctx context.Context) (uint64, error) {
	slot := dirSlot(r.from.Dir)
	recs, err := r.c.slots.Get(ctx, Key{slot, ""}, Key{slot, r.from.Name})
	if err != nil || recs[1].Value != nil {
		return 0, err
	}
	return recs[0].Version, nil
}

// close takes the decision away, also when the caller has left: what stays
// after a failure goes with a later listing.
func (r *renaming) close(ctx context.Context, mv *move, conds ...If) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if _, err := r.c.slots.Apply(ctx, dirSlot(r.to.Dir), conds, []Set{{Field: mv.tx.field()}}); err != nil {
		r.c.log.Debug("decision about a move stays", "err", err)
	}
}
