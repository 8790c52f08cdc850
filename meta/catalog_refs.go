package meta

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/p2pfs/p2pfs/chunk"
)

// AddReference records that a name stands for an object, or is about to: the
// names that do are among the references at every moment. An object of one
// block gets a record for it. It returns what was recorded, for
// RemoveReference.
func (c *Catalog) AddReference(ctx context.Context, o chunk.Object, at Place) (Reference, error) {
	refs, err := c.addReference(ctx, o, at)
	if err != nil {
		return Reference{}, err
	}
	return refs[len(refs)-1], nil
}

// addReference returns all references, the new one last. One that is there
// already is written anew, so that who added it before does not take it away.
func (c *Catalog) addReference(ctx context.Context, o chunk.Object, at Place) ([]Reference, error) {
	if err := CheckName(at.Name); err != nil {
		return nil, err
	}
	var refs []Reference
	_, err := c.rewrite(ctx, Key{objectSlot(o.ID), self}, func(old Record) ([]byte, error) {
		r, err := c.recordOf(o, old)
		if err != nil {
			return nil, err
		}
		r.References = slices.DeleteFunc(r.References, func(r Reference) bool { return r.Dir == at.Dir && r.Name == at.Name })
		r.References = append(r.References, Reference{at.Dir, at.Name, rand.Uint64()})
		refs = r.References
		return marshalObject(r, old.Value)
	})
	if err != nil {
		return nil, fmt.Errorf("add a reference to object %s: %w", o.ID.Short(), err)
	}
	return refs, nil
}

// RemoveReference takes a reference out of an object's record, as long as
// nobody has written it anew. One that is not there is no error.
func (c *Catalog) RemoveReference(ctx context.Context, id chunk.ObjectID, ref Reference) error {
	_, err := c.rewrite(ctx, Key{objectSlot(id), self}, func(old Record) ([]byte, error) {
		if old.Value == nil {
			return nil, nil
		}
		r, err := unmarshalObject(id, old.Value, old.Version, c.chunkSize.Load())
		if err != nil {
			return nil, err
		}
		n := len(r.References)
		r.References = slices.DeleteFunc(r.References, func(r Reference) bool { return r == ref })
		if len(r.References) == n {
			return nil, nil
		}
		return marshalObject(r, old.Value)
	})
	if err != nil {
		return fmt.Errorf("remove a reference of object %s: %w", id.Short(), err)
	}
	return nil
}

// Referenced reports whether a name stands for an object: one of those in its
// record, or hint (zero: none), which is where the caller knows it to have
// been. False is said only by the store of this cluster, and only if it cannot
// have been renamed meanwhile; else there is an error. An object that is
// just being published has no name yet.
func (c *Catalog) Referenced(ctx context.Context, id chunk.ObjectID, hint Reference) (bool, error) {
	yes, err := c.referenced(ctx, id, hint)
	if err != nil {
		return false, fmt.Errorf("look for the names of object %s: %w", id.Short(), err)
	}
	return yes, nil
}

func (c *Catalog) referenced(ctx context.Context, id chunk.ObjectID, hint Reference) (bool, error) {
	key := Key{objectSlot(id), self}
	recs, err := c.slots.Get(ctx, key)
	for err == nil {
		was := recs[0]
		var refs []Reference
		if refs, err = c.references(id, was, hint); err != nil {
			break
		}
		var yes bool
		if yes, err = c.anyNames(ctx, id, refs); yes || err != nil {
			return yes, err
		}
		// A rename adds the new name before the old one goes: if the record
		// is as it was, the names could not slip past us.
		if recs, err = c.slots.Get(ctx, key); err == nil && recs[0].Version == was.Version {
			return false, c.CheckStore(ctx) // an emptied store knows no names
		}
	}
	return false, err
}

// references returns the references of a record, and hint.
func (c *Catalog) references(id chunk.ObjectID, r Record, hint Reference) ([]Reference, error) {
	var refs []Reference
	if r.Value != nil {
		rec, err := unmarshalObject(id, r.Value, r.Version, c.chunkSize.Load())
		if err != nil {
			return nil, err
		}
		refs = rec.References
	}
	if hint.Name != "" {
		refs = append(refs, hint)
	}
	return refs, nil
}

// anyNames reports whether one of the names stands for the object.
func (c *Catalog) anyNames(ctx context.Context, id chunk.ObjectID, refs []Reference) (bool, error) {
	if len(refs) == 0 {
		return false, nil
	}
	keys := make([]Key, len(refs))
	for i, r := range refs {
		keys[i] = Key{dirSlot(r.Dir), r.Name}
	}
	recs, err := c.slots.Get(ctx, keys...)
	if err != nil {
		return false, err
	}
	for _, r := range recs {
		if r.Value == nil {
			continue
		}
		e, err := c.entry(r)
		if err != nil {
			return false, err
		}
		if e.Object.ID == id { // also if its time is over: only when its record goes are those told who have it open
			return true, nil
		}
	}
	return false, nil
}
