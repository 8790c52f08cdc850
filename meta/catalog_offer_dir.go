package meta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// OfferDir brings a directory's name back into its parent, and its own record
// into the store before it. It returns the directory that has the name then:
// the offered one, or another one that was made under it in a later epoch, by
// somebody who did not find it there: what was in the offered one belongs
// there. A directory that takes the place of one of an earlier epoch takes in
// what is in that. FateGone, FateOlder: the directory was removed, with all that
// was in it. ErrNotFound: the parent is not there.
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
		recs, err := c.raw.Get(ctx, Key{slot, self}, Key{slot, o.Name}, Key{slot, goneField + o.Name}, Key{slot, absorbField + o.Name})
		if err != nil {
			return 0, 0, err
		}
		if _, err := dirOf(parent, recs[0]); err != nil {
			return 0, 0, err
		}
		if recs[3].Value != nil { // who replaced a directory has died
			if err := c.absorb(ctx, recs[3]); err != nil {
				return 0, 0, err
			}
			continue
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
			return id, FateKnown, c.offerSelf(ctx, id, d)
		case fate == FateOlder && there != 0 && st.at.epoch > at.epoch:
			return there, FateKnown, nil
		case fate != FateTaken:
			return c.elsewhere(ctx, id, FateOlder)
		}
		if err := c.offerSelf(ctx, id, d); err != nil {
			return 0, 0, err
		}
		absorbs := there != 0 && there != id && st.at.epoch < at.epoch
		if absorbs {
			recs[3].Value = marshalAbsorb(there, id)
			sets = append(sets, Set{absorbField + o.Name, recs[3].Value})
		}
		conds := []If{{Field: self, Present: true}, unchanged(st.entry), unchanged(st.gone)}
		recs[3].Version, err = c.raw.Apply(ctx, slot, conds, sets)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err == nil && absorbs {
			err = c.absorb(ctx, recs[3])
		}
		return id, FateTaken, err
	}
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

// offerSelf makes a directory's own record if it has none.
func (c *Catalog) offerSelf(ctx context.Context, id InodeID, d DirInfo) error {
	b, err := marshalDir(d, nil)
	if err != nil {
		return err
	}
	_, err = c.raw.Apply(ctx, dirSlot(id), []If{{Field: self, Absent: true}}, []Set{{self, b}})
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// absorbField begins the fields that say, in the slot of a parent, that a
// directory took the place of another one and has yet to take in its names.
const absorbField = goneField + "/"

func marshalAbsorb(from, into InodeID) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(from))
	return binary.BigEndian.AppendUint64(b, uint64(into))
}

// absorb moves all names of one directory into the one that took its place, as
// offers, and removes it. Its own record goes first, so that nothing more can be
// brought into it.
func (c *Catalog) absorb(ctx context.Context, note Record) error {
	if len(note.Value) != 16 {
		return fmt.Errorf("take in a directory: %w: note of %d bytes", ErrFormat, len(note.Value))
	}
	from := InodeID(binary.BigEndian.Uint64(note.Value))
	into := InodeID(binary.BigEndian.Uint64(note.Value[8:]))
	slot := dirSlot(from)
	if _, err := c.raw.Apply(ctx, slot, nil, []Set{{Field: self}}); err != nil {
		return err
	}
	for {
		p, err := c.raw.List(ctx, slot, "", offerBatch)
		if err != nil {
			return err
		}
		if len(p.Records) == 0 {
			break
		}
		if err := c.absorbSome(ctx, into, p.Records); err != nil {
			return err
		}
	}
	_, err := c.raw.Apply(ctx, note.Slot, []If{{Field: note.Field, Version: note.Version}}, []Set{{Field: note.Field}})
	if errors.Is(err, ErrConflict) {
		return nil // another was faster
	}
	return err
}

func (c *Catalog) absorbSome(ctx context.Context, into InodeID, recs []Record) error {
	offers, err := c.offersOf(recs)
	if err != nil {
		return err
	}
	// A directory that was removed meanwhile takes nothing in.
	if _, err := c.Offer(ctx, into, offers); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	sets := make([]Set, 0, len(recs))
	for _, r := range recs {
		sets = append(sets, Set{Field: r.Field})
	}
	for _, o := range offers {
		if !o.Gone && o.Entry.Kind == KindDir {
			if err := c.setParent(ctx, o.Entry.Inode, into); err != nil {
				return err
			}
		}
	}
	_, err = c.raw.Apply(ctx, recs[0].Slot, nil, sets)
	return err
}

// offersOf reads a directory's records as offers: of a name that has both an
// entry and a tombstone, the later.
func (c *Catalog) offersOf(recs []Record) ([]Offer, error) {
	info := c.store.Load()
	best := make(map[string]Offer, len(recs))
	for _, r := range recs {
		o := Offer{Name: r.Field}
		var err error
		if name, ok := isGone(r.Field); ok && isName(name) {
			o.Name, o.Gone = name, true
			o.Origin, _, err = info.unmarshalGone(r)
		} else if isName(r.Field) {
			if o.Origin, err = info.originOf(r); err == nil {
				o.Entry, err = c.entry(r)
			}
		} else {
			continue
		}
		if err != nil {
			return nil, err
		}
		if was, ok := best[o.Name]; !ok || info.rank(was.Origin).less(info.rank(o.Origin)) {
			best[o.Name] = o
		}
	}
	offers := make([]Offer, 0, len(best))
	for _, o := range best {
		offers = append(offers, o)
	}
	return offers, nil
}

// setParent says which directory holds a directory's name now.
func (c *Catalog) setParent(ctx context.Context, id, parent InodeID) error {
	slot := dirSlot(id)
	for {
		recs, err := c.raw.Get(ctx, Key{slot, self})
		if err != nil || recs[0].Value == nil {
			return err
		}
		d, _, err := unmarshalDir(id, recs[0].Value, recs[0].Version)
		if err != nil || d.Parent == parent {
			return err
		}
		d.Parent = parent
		b, err := marshalDir(d, recs[0].Value)
		if err != nil {
			return err
		}
		if _, err = c.raw.Apply(ctx, slot, []If{unchanged(recs[0])}, []Set{{self, b}}); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}
