package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// How a directory is removed, though its name and what is in it lie in two
// slots:
//
//  1. its name is marked, with the version of the directory's own record,
//  2. that record goes, if it has the version and nothing is in the directory:
//     nothing can be created in it any more; or, if something is, it is written
//     again as it was,
//  3. the name goes, or the mark.
//
// Who meets the mark goes on from step 2. The mark is never taken off while the
// record has the version that it says, so that who comes late removes no
// directory that has another name by now.

// Rmdir removes an empty directory and returns the version of its parent then.
// A name that stays because its remover died is taken away by whoever looks it
// up or wants it. ErrNotFound, ErrNotDir, ErrNotEmpty.
func (c *Catalog) Rmdir(ctx context.Context, dir InodeID, name string) (uint64, error) {
	at, err := c.rmdir(ctx, dir, name)
	if err != nil {
		return 0, fmt.Errorf("remove directory %q: %w", name, err)
	}
	return at, nil
}

func (c *Catalog) rmdir(ctx context.Context, dir InodeID, name string) (uint64, error) {
	if err := CheckName(name); err != nil {
		return 0, err
	}
	from := Place{dir, name}
	for {
		r, mv, err := c.underWay(ctx, from)
		if err == nil && mv != nil {
			if err = c.settle(ctx, from, r, mv); err == nil {
				continue
			}
		}
		if err == nil && r.Value == nil {
			err = ErrNotFound
		}
		if err != nil {
			return 0, err
		}
		e, err := c.entry(r)
		if err == nil && e.Kind != KindDir {
			err = ErrNotDir
		}
		if err != nil {
			return 0, err
		}
		r, mv, err = c.markRemoval(ctx, from, r, e.Inode)
		var dead bool
		var at uint64
		if err == nil {
			dead, at, err = c.endRemoval(ctx, from, r, mv)
		}
		switch {
		case err == nil && !dead, errors.Is(err, ErrConflict):
			continue
		case err == nil && at == 0: // another took the name away
			_, at, err = c.LookupAt(ctx, dir, name)
			if errors.Is(err, ErrNotFound) {
				err = nil
			}
		}
		return at, err
	}
}

// markRemoval marks the name r of a directory, and returns its record then.
// ErrNotEmpty, also if it is in the end another directory that has the name.
// ErrConflict: the name or the directory was changed.
func (c *Catalog) markRemoval(ctx context.Context, from Place, r Record, id InodeID) (Record, *move, error) {
	if id == RootDir {
		return Record{}, nil, fmt.Errorf("the root directory cannot be removed: %w", ErrNotEmpty)
	}
	own, err := c.clearDecisions(ctx, id)
	if err == nil && own.Value == nil {
		if _, err = c.bury(ctx, from.Dir, r, id); err == nil {
			err = ErrConflict
		}
	}
	if errors.Is(err, ErrNotEmpty) { // it was, unless it had another name by then
		err = cmp.Or(c.unchanged(ctx, r), err)
	}
	if err != nil {
		return Record{}, nil, err
	}
	mv := &move{version: own.Version}
	b, err := rewriteMove(r.Value, mv, 0)
	if err != nil {
		return Record{}, nil, err
	}
	at, err := c.slots.Apply(ctx, dirSlot(from.Dir), []If{{Field: from.Name, Version: r.Version}}, []Set{{from.Name, b}})
	return Record{Slot: r.Slot, Field: from.Name, Value: b, Version: at}, mv, err
}

// unchanged returns ErrConflict if a record is not as it was read.
func (c *Catalog) unchanged(ctx context.Context, r Record) error {
	now, err := c.slots.Get(ctx, Key{r.Slot, r.Field})
	if err == nil && now[0].Version != r.Version {
		err = ErrConflict
	}
	return err
}

// endRemoval ends the removal that r, the record of from, tells of. at is the
// parent's version when the name had gone; 0 if another took it away.
func (c *Catalog) endRemoval(ctx context.Context, from Place, r Record, mv *move) (dead bool, at uint64, err error) {
	e, err := c.entry(r)
	if err != nil {
		return false, 0, err
	}
	if dead, err = c.removeMarked(ctx, e.Inode, mv); err != nil {
		return false, 0, err
	}
	set := Set{Field: from.Name}
	if !dead {
		if set.Value, err = rewriteMove(r.Value, nil, 0); err != nil {
			return false, 0, err
		}
	}
	at, err = c.slots.Apply(ctx, dirSlot(from.Dir), []If{{Field: from.Name, Version: r.Version}}, []Set{set})
	if errors.Is(err, ErrConflict) {
		at, err = 0, nil
	}
	return dead, at, err
}

// removeMarked removes the own record of a directory whose name is marked, or
// makes sure that no one else does under that mark.
func (c *Catalog) removeMarked(ctx context.Context, id InodeID, mv *move) (dead bool, err error) {
	slot := dirSlot(id)
	unchanged := If{Field: self, Version: mv.version}
	for {
		_, err := c.slots.Apply(ctx, slot, []If{unchanged, {NoOthers: true}}, []Set{{Field: self}})
		if !errors.Is(err, ErrConflict) {
			return err == nil, err
		}
		recs, err := c.slots.Get(ctx, Key{slot, self})
		switch {
		case err != nil:
			return false, err
		case recs[0].Value == nil:
			return true, nil
		case recs[0].Version != mv.version:
			return false, nil
		}
		if _, err = c.clearDecisions(ctx, id); errors.Is(err, ErrNotEmpty) {
			_, err = c.slots.Apply(ctx, slot, []If{unchanged}, []Set{{self, recs[0].Value}})
		}
		if err != nil && !errors.Is(err, ErrConflict) {
			return false, err
		}
	}
}

// leaving finishes what is under way of a name; gone says that it was, so that
// the directory may be empty.
func (c *Catalog) leaving(ctx context.Context, dir InodeID, r Record) (gone bool, err error) {
	_, again, err := c.stand(ctx, dir, r)
	if errors.Is(err, ErrFormat) {
		return false, nil
	}
	return again, err
}

// clearDecisions takes away the decisions about moves into a directory, so
// that it is empty if it has no names, and returns its own record, if it has
// one. ErrNotEmpty if it has names.
func (c *Catalog) clearDecisions(ctx context.Context, id InodeID) (own Record, err error) {
	var decisions []Record
	next := ""
	for first := true; first || next != ""; first = false {
		p, err := c.slots.List(ctx, dirSlot(id), next, MaxSets)
		if err != nil {
			return Record{}, err
		}
		for _, r := range p.Records {
			switch {
			case r.Field == self:
				own = r
			case strings.HasPrefix(r.Field, txPrefix):
				decisions = append(decisions, r)
			case isName(r.Field):
				gone, err := c.leaving(ctx, id, r)
				if err == nil && !gone {
					err = ErrNotEmpty
				}
				if err != nil {
					return Record{}, err
				}
			}
		}
		next = p.Next
	}
	for _, r := range decisions {
		if err := c.clearDecision(ctx, id, r); err != nil {
			return Record{}, err
		}
	}
	return own, nil
}
