package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How an entry moves from one directory to another, though no change touches
// two slots:
//
//  1. an open decision is written into the target's slot,
//  2. the entry, at its source, is marked as under way to the target,
//  3. the entry is written at the target, and the decision becomes done,
//  4. the source's entry goes,
//  5. the decision goes.
//
// Who meets an entry that is under way (Lookup, List, every change of it) goes
// on from step 3, so that it does not matter where the mover ended. All of them
// change the decision on the condition that it is the open one they read: the
// move is done or aborted once, and what comes late finds the decision changed
// or gone. It is never written anew, so that nothing is moved twice, and one
// that is gone means that the move has not happened: a done one goes after the
// source's entry has gone.

// stand reads the record of a name as an entry that others may build on. again
// says that a move or a removal was found half done and was finished, or that the
// time of the name was over: the record has to be read anew.
func (c *Catalog) stand(ctx context.Context, dir InodeID, r Record) (e Entry, again bool, err error) {
	e, mv, err := c.moving(r)
	switch {
	case err != nil:
		return Entry{}, false, err
	case mv != nil:
		err := c.settle(ctx, Place{dir, e.Name}, r, mv)
		return Entry{}, err == nil, err
	case e.Ended(time.Now()):
		if c.readOnly() {
			return Entry{}, false, ErrNotFound
		}
		err := c.end(ctx, dir, r)
		return Entry{}, err == nil, err
	case e.Kind == KindDir && !c.readOnly():
		again, err := c.bury(ctx, dir, r, e.Inode)
		return e, again, err
	}
	return e, false, nil
}

// settled reads the record of a name, and finishes what it finds half done: only
// then does it say whether the name is there. It may be one that cannot be read.
func (c *Catalog) settled(ctx context.Context, dir InodeID, name string) (Record, error) {
	for {
		recs, err := c.slots.Get(ctx, Key{dirSlot(dir), name})
		if err != nil || recs[0].Value == nil {
			return Record{}, err
		}
		_, again, err := c.stand(ctx, dir, recs[0])
		if !again {
			if errors.Is(err, ErrFormat) {
				err = nil
			}
			return recs[0], err
		}
	}
}

// bury takes away the name r if its directory id is dead: who removed it ended
// between the two steps of Rmdir, or is there now.
func (c *Catalog) bury(ctx context.Context, dir InodeID, r Record, id InodeID) (buried bool, err error) {
	_, err = c.Dir(ctx, id)
	if !errors.Is(err, ErrNotFound) {
		return false, err
	}
	_, err = c.slots.Apply(ctx, dirSlot(dir), []If{{Field: r.Field, Version: r.Version}}, []Set{{Field: r.Field}})
	if err != nil && !errors.Is(err, ErrConflict) {
		return false, fmt.Errorf("take away the name of removed directory %q: %w", r.Field, err)
	}
	return true, nil
}

// Finish ends a move of a name to another directory whose mover has died, or
// is about to end it itself; a name that is not being moved it leaves alone.
func (c *Catalog) Finish(ctx context.Context, dir InodeID, name string) error {
	r, mv, err := c.underWay(ctx, Place{dir, name})
	if err == nil && mv != nil {
		err = c.settle(ctx, Place{dir, name}, r, mv)
	}
	return err
}

// underWay reads where an entry is being moved to; nil if it is not, or there
// is none.
func (c *Catalog) underWay(ctx context.Context, from Place) (Record, *move, error) {
	recs, err := c.slots.Get(ctx, Key{dirSlot(from.Dir), from.Name})
	if err != nil {
		return Record{}, nil, fmt.Errorf("look for a move of %q: %w", from.Name, err)
	}
	if recs[0].Value == nil {
		return Record{}, nil, nil
	}
	_, mv, err := c.moving(recs[0])
	return recs[0], mv, err
}

// settle ends the move or the removal that r, the record of from, tells of. The decision
// stays, for the mover to see it.
func (c *Catalog) settle(ctx context.Context, from Place, r Record, mv *move) error {
	if mv.removal() {
		_, _, err := c.endRemoval(ctx, from, r, mv)
		return err
	}
	d, err := c.decide(ctx, r, mv)
	if err == nil {
		_, err = c.leave(ctx, from, r, mv, d.outcome)
	}
	if err != nil {
		return fmt.Errorf("finish the move of %q: %w", from.Name, err)
	}
	return nil
}

// verdict is a decision as it was found or made.
type verdict struct {
	outcome outcome
	at      uint64 // version of the decision, and of the entry it moved; 0: it is gone
}

// decide returns the outcome of a move, and brings it about where it is open.
func (c *Catalog) decide(ctx context.Context, r Record, mv *move) (verdict, error) {
	slot := dirSlot(mv.to.Dir)
	for {
		recs, err := c.slots.Get(ctx, Key{slot, mv.tx.field()}, Key{slot, mv.to.Name})
		if err != nil {
			return verdict{}, err
		}
		if recs[0].Value == nil {
			return verdict{outcome: moveAborted}, nil
		}
		d, err := unmarshalDecision(recs[0].Value)
		if err != nil {
			return verdict{}, err
		}
		if d.outcome != moveOpen {
			return verdict{d.outcome, recs[0].Version}, nil
		}
		out := moveAborted
		if mv.version == recs[1].Version { // both 0 if the name is free
			out = moveDone
		}
		at, err := c.write(ctx, r, mv, recs[0], decision{d.from, out}, time.Now().UnixNano())
		if !errors.Is(err, ErrConflict) {
			return verdict{out, at}, err
		}
	}
}

// write makes an open decision out, and if that is done, writes the entry at
// its target in the same step, changed at ctime. ErrConflict: the decision was
// made by another, or the target has changed.
func (c *Catalog) write(ctx context.Context, r Record, mv *move, was Record, d decision, ctime int64) (uint64, error) {
	b, err := marshalDecision(d, was.Value)
	if err != nil {
		return 0, err
	}
	conds := []If{{Field: was.Field, Version: was.Version}}
	sets := []Set{{was.Field, b}}
	if d.outcome == moveDone {
		entry, err := rewriteMove(r.Value, nil, ctime)
		if err != nil {
			return 0, err
		}
		conds = append(conds, If{Field: self, Present: true}, mv.target())
		sets = append(sets, Set{mv.to.Name, entry})
	}
	return c.slots.Apply(ctx, dirSlot(mv.to.Dir), conds, sets)
}

// target is the condition that the name moved to is as the mover found it.
func (mv *move) target() If {
	if mv.version == 0 {
		return If{Field: mv.to.Name, Absent: true}
	}
	return If{Field: mv.to.Name, Version: mv.version}
}

// leave takes the entry away from the source of a move, or, if the move was
// aborted, lets it be as it was. It returns the version of the source's
// directory when the entry had gone; 0 if another took it away.
func (c *Catalog) leave(ctx context.Context, from Place, r Record, mv *move, out outcome) (goneAt uint64, err error) {
	set := Set{Field: from.Name}
	if out == moveDone {
		if err := c.adopt(ctx, from, r, mv); err != nil {
			return 0, err
		}
	} else if set.Value, err = rewriteMove(r.Value, nil, 0); err != nil {
		return 0, err
	}
	at, err := c.slots.Apply(ctx, dirSlot(from.Dir), []If{{Field: from.Name, Version: r.Version}}, []Set{set})
	if errors.Is(err, ErrConflict) {
		return 0, nil
	}
	return at, err
}

// adopt tells a directory that was moved its new parent. The source's entry is
// still there: as long as it is, the directory cannot be moved on, so that a
// parent is never put in the place of a newer one.
func (c *Catalog) adopt(ctx context.Context, from Place, r Record, mv *move) error {
	e, err := c.entry(r)
	if err != nil || e.Kind != KindDir {
		return err
	}
	key := Key{dirSlot(e.Inode), self}
	_, err = c.rewrite(ctx, key, func(old Record) ([]byte, error) {
		if old.Value == nil {
			return nil, nil // removed from its new place
		}
		now, err := c.slots.Get(ctx, Key{dirSlot(from.Dir), from.Name})
		if err != nil || now[0].Version != r.Version {
			return nil, err // another has done all this
		}
		d, _, err := unmarshalDir(e.Inode, old.Value, old.Version)
		if err != nil || d.Parent == mv.to.Dir {
			return nil, err
		}
		d.Parent = mv.to.Dir
		return marshalDir(d, old.Value)
	})
	return err
}
