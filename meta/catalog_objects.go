package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/p2pfs/p2pfs/chunk"
)

const (
	// objectsInFlight is how many objects PutObjects writes at once.
	objectsInFlight = 32
	// applyBytes bounds the values of one change: etcd's default takes
	// 1.5 MiB a request.
	applyBytes = 1 << 20
	// groupsPerGet bounds the answer of one request for groups (2 MiB).
	groupsPerGet = 32
)

// PutObjects writes the records of new objects and their zero blocks, many at
// once. Writing one again as it is is harmless; ErrExist: another object has
// the id. An error leaves what was written before it.
func (c *Catalog) PutObjects(ctx context.Context, objects []ObjectRecord) error {
	return inParallel(ctx, objectsInFlight, slices.Values(objects), c.putObject)
}

func (c *Catalog) putObject(ctx context.Context, r ObjectRecord) error {
	b, err := marshalObject(r, nil)
	if err != nil {
		return err
	}
	sets, err := zeroGroups(r)
	if err != nil {
		return err
	}
	// The object's own record goes last: who sees it sees its groups.
	for _, part := range splitSets(append(sets, Set{self, b})) {
		_, err := c.slots.Apply(ctx, objectSlot(r.Object.ID), []If{{Field: self, Absent: true}}, part)
		if errors.Is(err, ErrConflict) {
			err = c.sameObject(ctx, r.Object)
		}
		if err != nil {
			return fmt.Errorf("write object %s: %w", r.Object.ID.Short(), err)
		}
	}
	return nil
}

// sameObject returns nil if the store already holds o as it is.
func (c *Catalog) sameObject(ctx context.Context, o chunk.Object) error {
	r, err := c.Object(ctx, o.ID)
	if err != nil {
		return err
	}
	r.Object.Sparse = o.Sparse // not a fact of the record
	if r.Object != o {
		return ErrExist
	}
	return nil
}

// zeroGroups returns the groups that hold zero blocks.
func zeroGroups(r ObjectRecord) ([]Set, error) {
	if r.Zeros.Len() == 0 {
		return nil, nil
	}
	if r.Zeros.Len() != r.Object.Blocks() {
		return nil, fmt.Errorf("write object %s: zero bits for %d blocks of %d", r.Object.ID.Short(), r.Zeros.Len(), r.Object.Blocks())
	}
	var sets []Set
	for i := range Groups(r.Object) {
		g := newSumGroup(r.Object, i)
		for b := range g.Zero.Len() {
			if r.Zeros.Has(i*GroupBlocks + b) {
				g.Zero.Set(b)
			}
		}
		if g.Zero.Count() == 0 {
			continue
		}
		b, err := marshalSumGroup(g, nil)
		if err != nil {
			return nil, err
		}
		sets = append(sets, Set{groupField(i), b})
	}
	return sets, nil
}

// splitSets cuts a long change into ones that every store takes, in order.
func splitSets(sets []Set) [][]Set {
	var parts [][]Set
	first, bytes := 0, 0
	for i, s := range sets {
		if i > first && (i-first == MaxSets || bytes+len(s.Value) > applyBytes) {
			parts = append(parts, sets[first:i])
			first, bytes = i, 0
		}
		bytes += len(s.Value)
	}
	return append(parts, sets[first:])
}

// Object returns the record of an object, without its zero blocks.
// ErrNotFound: it has none, as objects of one block.
func (c *Catalog) Object(ctx context.Context, id chunk.ObjectID) (ObjectRecord, error) {
	recs, err := c.slots.Get(ctx, Key{objectSlot(id), self})
	if err == nil && recs[0].Value == nil {
		err = ErrNotFound
	}
	if err != nil {
		return ObjectRecord{}, fmt.Errorf("read object %s: %w", id.Short(), err)
	}
	return unmarshalObject(id, recs[0].Value, recs[0].Version, c.chunkSize.Load())
}

// MarkDamaged records that an object cannot be trusted, for everyone. The
// first reason stands. An object of one block gets a record for it.
func (c *Catalog) MarkDamaged(ctx context.Context, o chunk.Object, why string) error {
	err := c.rewrite(ctx, Key{objectSlot(o.ID), self}, func(old Record) ([]byte, error) {
		r := ObjectRecord{Object: o}
		if old.Value != nil {
			var err error
			if r, err = unmarshalObject(o.ID, old.Value, old.Version, c.chunkSize.Load()); err != nil {
				return nil, err
			}
		}
		if r.Damaged != "" {
			return nil, nil
		}
		r.Damaged = why
		return marshalObject(r, old.Value)
	})
	if err != nil {
		return fmt.Errorf("mark object %s damaged: %w", o.ID.Short(), err)
	}
	return nil
}

// DropObject removes all that the store holds of an object; one that is gone
// already is no error.
func (c *Catalog) DropObject(ctx context.Context, id chunk.ObjectID) error {
	slot := objectSlot(id)
	for {
		p, err := c.slots.List(ctx, slot, "", MaxSets)
		if err == nil && len(p.Records) > 0 {
			sets := make([]Set, 0, len(p.Records))
			for _, r := range p.Records {
				sets = append(sets, Set{Field: r.Field})
			}
			_, err = c.slots.Apply(ctx, slot, nil, sets)
		}
		if err != nil {
			return fmt.Errorf("drop object %s: %w", id.Short(), err)
		}
		if p.Next == "" {
			return nil
		}
	}
}

// rewrite changes one record by compare-and-swap, again and again until no
// other change comes between. change gets the record as it is and returns the
// new value; nil leaves it.
func (c *Catalog) rewrite(ctx context.Context, key Key, change func(old Record) ([]byte, error)) error {
	for {
		recs, err := c.slots.Get(ctx, key)
		if err != nil {
			return err
		}
		b, err := change(recs[0])
		if b == nil || err != nil {
			return err
		}
		cond := If{Field: key.Field, Version: recs[0].Version}
		if recs[0].Value == nil {
			cond = If{Field: key.Field, Absent: true}
		}
		_, err = c.slots.Apply(ctx, key.Slot, []If{cond}, []Set{{key.Field, b}})
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}
