package meta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// Step is one directory on the way to a name: where it was last seen.
type Step struct {
	Dir   InodeID // that holds its name
	Name  string
	Inode InodeID // the directory itself
}

// Way is how a directory was reached from the mountpoint: the first step's Dir is
// the root, the last step's Inode is the directory. The root's way is empty.
type Way []Step

// key is equal for equal ways.
func (w Way) key() string {
	var b []byte
	for _, s := range w {
		b = binary.BigEndian.AppendUint64(b, uint64(s.Dir))
		b = binary.BigEndian.AppendUint64(b, uint64(s.Inode))
		b = append(append(b, s.Name...), '/')
	}
	return string(b)
}

// Standing asks the store, by one read that begins after the call, whether every
// directory of a way still stands where the way says: whoever reached one by a name
// that stands for another directory since may find nothing in it, or what is not
// meant. Nil: all do. ErrStale: one does not. ErrUnavailable: the store cannot be
// asked. Calls for the same way that wait for a running read share the next one.
func (v *View) Standing(ctx context.Context, way Way) error {
	if len(way) == 0 {
		return nil
	}
	if st := v.health.status(); st.State == StateDown {
		return fmt.Errorf("confirm the way to a directory: %w", errors.Join(ErrUnavailable, st.Err))
	}
	_, err := v.ways.do(ctx, way.key(), func() (struct{}, error) { return struct{}{}, v.standing(way) })
	return err
}

func (v *View) standing(way Way) error {
	ctx, cancel := context.WithTimeout(v.ctx, v.cfg.Timeout)
	defer cancel()
	recs, err := v.cat.slots.Get(ctx, way.keys()...)
	if err == nil {
		err = v.sure(ctx, v.cat.standing(way, recs))
	}
	if err != nil {
		err = fmt.Errorf("confirm the way to a directory: %w", err)
	}
	if !errors.Is(err, ErrStale) {
		v.health.report(err)
	}
	return err
}

// sure returns what was found of a way, or why it says nothing: it is another
// store that answered.
func (v *View) sure(ctx context.Context, moved error) error {
	if errors.Is(moved, ErrStale) {
		if other := v.recheck(ctx); other != nil {
			return other
		}
	}
	return moved
}

// ConfirmBy is Confirm and Standing by one read: moved is what Standing says of the
// way. It says nothing when err is neither nil nor ErrNotFound, or the entry is what
// was known before an outage.
func (v *View) ConfirmBy(ctx context.Context, way Way, dir InodeID, name string) (e Entry, moved, err error) {
	a, err := v.confirm(ctx, way, dir, name)
	return a.entry, a.moved, err
}

// LookupBy is Lookup that says what ConfirmBy does of a way, if it asks the store.
func (v *View) LookupBy(ctx context.Context, way Way, dir InodeID, name string) (e Entry, moved, err error) {
	a, err := v.lookup(ctx, way, dir, name)
	return a.entry, a.moved, err
}

// Alive asks the store whether a directory exists, whatever its name is now.
// ErrUnavailable: it cannot be asked.
func (v *View) Alive(ctx context.Context, dir InodeID) (bool, error) {
	if st := v.health.status(); st.State == StateDown {
		return false, fmt.Errorf("look for directory %016x: %w", uint64(dir), errors.Join(ErrUnavailable, st.Err))
	}
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeout)
	defer cancel()
	_, err := v.cat.Dir(ctx, dir)
	if errors.Is(err, ErrNotFound) { // in another store it says nothing
		return false, v.recheck(ctx)
	}
	v.health.report(err)
	return err == nil, err
}

// keys returns the names that a way consists of.
func (w Way) keys() []Key {
	keys := make([]Key, len(w))
	for i, s := range w {
		keys[i] = Key{dirSlot(s.Dir), s.Name}
	}
	return keys
}

// standing returns nil if all directories of a way stand where it says, and else
// ErrStale; recs are the records of its names. One that is being moved stands until
// it is gone.
func (c *Catalog) standing(way Way, recs []Record) error {
	for i, s := range way {
		id, err := c.dirIn(recs[i])
		if err != nil {
			return err
		}
		if id != s.Inode {
			return fmt.Errorf("directory %q is not what it was: %w", s.Name, ErrStale)
		}
	}
	return nil
}
