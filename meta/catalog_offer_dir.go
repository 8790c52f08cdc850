package meta

import (
	"context"
	"errors"
	"fmt"
)

// OfferDir brings a directory's name back into its parent, and its own record
// into the store before it. It returns the directory that what was in it belongs
// into: itself, under whatever name it lives on, or another one that was made
// under its name in this epoch, by somebody who did not find it there.
// A directory that has a later name elsewhere keeps it alone.
// FateGone, FateOlder: the directory was removed, with all that was in it.
// ErrNotFound: the parent is not there.
func (c *Catalog) OfferDir(ctx context.Context, parent InodeID, o Offer, d DirInfo) (InodeID, Fate, error) {
	id, fate, err := c.offerDir(ctx, parent, o, d)
	if err != nil {
		return 0, 0, fmt.Errorf("offer directory %q: %w", o.Name, err)
	}
	return id, fate, nil
}

func (c *Catalog) offerDir(ctx context.Context, parent InodeID, o Offer, d DirInfo) (InodeID, Fate, error) {
	d.Parent = parent
	slot := dirSlot(parent)
	for {
		info := c.store.Load()
		if info == nil {
			return 0, 0, errors.New("the cluster has not been joined")
		}
		recs, err := c.raw.Get(ctx, Key{slot, self}, Key{slot, o.Name}, Key{slot, goneField + o.Name})
		if err != nil {
			return 0, 0, err
		}
		if _, err := dirOf(parent, recs[0]); err != nil {
			return 0, 0, err
		}
		st, err := info.stand(recs[1], recs[2])
		if err != nil {
			return 0, 0, err
		}
		sets, fate, err := info.decide(o, st)
		if err != nil {
			return 0, 0, err
		}
		there, err := c.dirIn(st.entry)
		if err != nil {
			return 0, 0, err
		}
		at, id := info.rank(o.Origin), o.Entry.Inode
		switch {
		case fate == FateGone:
			return c.elsewhere(ctx, id, fate)
		case there == id && fate != FateTaken:
			return id, FateKnown, c.tellParent(ctx, id, Place{Dir: parent, Name: o.Name})
		case fate == FateOlder && there != 0 && st.at.epoch == len(info.Epochs) && at.epoch < st.at.epoch:
			return there, FateKnown, nil
		case fate != FateTaken:
			return c.elsewhere(ctx, id, FateOlder)
		}
		made, err := c.makeSelf(ctx, id, d)
		if err != nil {
			return 0, 0, err
		}
		if !made {
			later, err := c.namedLater(ctx, info, id, Place{Dir: parent, Name: o.Name}, at)
			if err != nil || later { // with both names it could be below itself
				return id, FateKnown, err
			}
		}
		conds := []If{{Field: self, Present: true}, unchanged(st.entry), unchanged(st.gone)}
		_, err = c.raw.Apply(ctx, slot, conds, sets)
		if err == nil && !made {
			err = c.tellParent(ctx, id, Place{Dir: parent, Name: o.Name})
		}
		if !errors.Is(err, ErrConflict) {
			return id, FateTaken, err
		}
	}
}

// namedLater reports whether a directory has another name than the one at a place,
// in the parent that its own record names, which it was given later than at.
func (c *Catalog) namedLater(ctx context.Context, info *StoreInfo, id InodeID, but Place, at rank) (bool, error) {
	d, err := c.Dir(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	next := ""
	for first := true; first || next != ""; first = false {
		p, err := c.raw.List(ctx, dirSlot(d.Parent), next, listPage)
		if err != nil {
			return false, err
		}
		for _, r := range p.Records {
			if !isName(r.Field) || (Place{Dir: d.Parent, Name: r.Field}) == but {
				continue
			}
			if there, err := c.dirIn(r); err != nil || there != id {
				continue
			}
			o, err := info.originOf(r)
			if err != nil || at.less(info.rank(o)) {
				return err == nil, err
			}
		}
		next = p.Next
	}
	return false, nil
}

// dirIn returns the directory that a record of an entry stands for, 0 if none.
func (c *Catalog) dirIn(r Record) (InodeID, error) {
	if r.Value == nil {
		return 0, nil
	}
	e, err := c.entry(r)
	if err != nil || e.Kind != KindDir {
		return 0, err
	}
	return e.Inode, nil
}

// elsewhere returns a directory that lost the name it is offered under, if it
// lives on under another one.
func (c *Catalog) elsewhere(ctx context.Context, id InodeID, fate Fate) (InodeID, Fate, error) {
	_, err := c.Dir(ctx, id)
	switch {
	case err == nil:
		return id, FateKnown, nil
	case errors.Is(err, ErrNotFound):
		return 0, fate, nil
	}
	return 0, 0, err
}

// makeSelf makes a directory's own record; made is false if it is there.
func (c *Catalog) makeSelf(ctx context.Context, id InodeID, d DirInfo) (made bool, err error) {
	b, err := marshalDir(d, nil)
	if err != nil {
		return false, err
	}
	_, err = c.raw.Apply(ctx, dirSlot(id), []If{{Field: self, Absent: true}}, []Set{{self, b}})
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// tellParent lets a directory's own record say who holds its name, as long as that
// stands for it: of two nodes that know it under different names, one may take
// the other's away at the same time.
func (c *Catalog) tellParent(ctx context.Context, id InodeID, at Place) error {
	slot, before := dirSlot(id), InodeID(0) // before: whom the record named until this call changed it
	for {
		recs, err := c.raw.Get(ctx, Key{dirSlot(at.Dir), at.Name}, Key{slot, self})
		if err != nil {
			return err
		}
		there, err := c.dirIn(recs[0])
		if err != nil || recs[1].Value == nil {
			return err
		}
		was, dead, err := unmarshalDir(id, recs[1].Value, recs[1].Version)
		if err != nil || dead {
			return err
		}
		parent := at.Dir
		if there != id {
			parent = before
		}
		if parent == 0 || was.Parent == parent || there != id && was.Parent != at.Dir {
			return nil
		}
		old := was.Parent
		was.Parent = parent
		b, err := marshalDir(was, recs[1].Value)
		if err != nil {
			return err
		}
		_, err = c.raw.Apply(ctx, slot, []If{unchanged(recs[1])}, []Set{{self, b}})
		if err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
		if err == nil && there == id {
			before = old
		}
	}
}
