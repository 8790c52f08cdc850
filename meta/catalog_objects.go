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

// PutObjects writes the records of new objects, their zero blocks and their
// sums, many at once. Writing one again is harmless, and adds its references;
// ErrExist: another object has the id. An error leaves what was written before it.
func (c *Catalog) PutObjects(ctx context.Context, objects []ObjectRecord) error {
	return inParallel(ctx, objectsInFlight, slices.Values(objects), c.putObject)
}

func (c *Catalog) putObject(ctx context.Context, r ObjectRecord) error {
	b, err := marshalObject(r, nil)
	if err != nil {
		return err
	}
	sets, err := groupsOf(r)
	if err != nil {
		return err
	}
	// The object's own record goes last: who sees it sees its groups.
	for _, part := range splitSets(append(sets, Set{self, b})) {
		_, err := c.slots.Apply(ctx, objectSlot(r.Object.ID), []If{{Field: self, Absent: true}}, part)
		if errors.Is(err, ErrConflict) {
			err = c.sameObject(ctx, r)
		}
		if err != nil {
			return fmt.Errorf("write object %s: %w", r.Object.ID.Short(), err)
		}
	}
	return nil
}

// sameObject returns nil if the store already holds an object as it is, with the
// names that are to stand for it among its references: it may have been written
// for another name, that was not to be had.
func (c *Catalog) sameObject(ctx context.Context, r ObjectRecord) error {
	was, err := c.Object(ctx, r.Object.ID)
	if err != nil {
		return err
	}
	was.Object.Sparse = r.Object.Sparse // not a fact of the record
	if was.Object != r.Object {
		return ErrExist
	}
	for _, ref := range r.References {
		if slices.ContainsFunc(was.References, func(w Reference) bool { return w.Dir == ref.Dir && w.Name == ref.Name }) {
			continue
		}
		if _, err := c.addReference(ctx, r.Object, Place{Dir: ref.Dir, Name: ref.Name}); err != nil {
			return err
		}
	}
	return nil
}

// groupsOf returns the groups that hold an object's zero blocks and sums.
func groupsOf(r ObjectRecord) ([]Set, error) {
	n := r.Object.Blocks()
	if r.Zeros.Len() != 0 && r.Zeros.Len() != n || len(r.Sums) != 0 && len(r.Sums) != n {
		return nil, fmt.Errorf("write object %s: %d zero bits and %d checksums for %d blocks", r.Object.ID.Short(), r.Zeros.Len(), len(r.Sums), n)
	}
	if r.Zeros.Count() == 0 && len(r.Sums) == 0 {
		return nil, nil
	}
	var sets []Set
	for i := range Groups(r.Object) {
		g := newSumGroup(r.Object, i)
		first := i * GroupBlocks
		if len(r.Sums) > 0 {
			g.Known.Fill()
			copy(g.Sums, r.Sums[first:])
		}
		if r.Zeros.Len() > 0 {
			// A group starts at a whole byte, since GroupBlocks is a multiple of 8.
			copy(g.Zero.Bytes(), r.Zeros.Bytes()[first/8:])
		}
		if g.Zero.Count() == 0 && len(r.Sums) == 0 {
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

// recordOf reads an object's record, or begins one where there is none.
func (c *Catalog) recordOf(o chunk.Object, old Record) (ObjectRecord, error) {
	if old.Value == nil {
		return ObjectRecord{Object: o}, nil
	}
	return unmarshalObject(o.ID, old.Value, old.Version, c.chunkSize.Load())
}

// MarkDamaged records that an object cannot be trusted, for everyone. The
// first reason stands. An object of one block gets a record for it.
func (c *Catalog) MarkDamaged(ctx context.Context, o chunk.Object, why string) error {
	_, err := c.rewrite(ctx, Key{objectSlot(o.ID), self}, func(old Record) ([]byte, error) {
		r, err := c.recordOf(o, old)
		if err != nil {
			return nil, err
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

// DeleteObject removes all that the store holds of an object: its record and
// its groups. One that is gone already is no error. Its names and its set's
// providers are not touched.
func (c *Catalog) DeleteObject(ctx context.Context, id chunk.ObjectID) error {
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
			return fmt.Errorf("delete object %s: %w", id.Short(), err)
		}
		if p.Next == "" {
			return nil
		}
	}
}

// rewrite changes one record by compare-and-swap, again and again until no
// other change comes between, and returns its version. change gets the record
// as it is and returns the new value; nil leaves it.
func (c *Catalog) rewrite(ctx context.Context, key Key, change func(old Record) ([]byte, error)) (uint64, error) {
	for {
		recs, err := c.slots.Get(ctx, key)
		if err != nil {
			return 0, err
		}
		b, err := change(recs[0])
		if b == nil || err != nil {
			return recs[0].Version, err
		}
		cond := If{Field: key.Field, Version: recs[0].Version}
		if recs[0].Value == nil {
			cond = If{Field: key.Field, Absent: true}
		}
		at, err := c.slots.Apply(ctx, key.Slot, []If{cond}, []Set{{key.Field, b}})
		if !errors.Is(err, ErrConflict) {
			return at, err
		}
	}
}
