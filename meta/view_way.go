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
	fallen, err := v.cat.fallen(ctx, way)
	if err == nil && fallen != "" { // in another store it says nothing
		err = v.recheck(ctx)
	}
	v.health.report(err)
	switch {
	case err != nil:
		return fmt.Errorf("confirm the way to a directory: %w", err)
	case fallen != "":
		return fmt.Errorf("directory %q is not what it was: %w", fallen, ErrStale)
	}
	return nil
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

// fallen returns the name of a directory of a way that does not stand there any
// more; empty: all do. One that is being moved stands until it is gone.
func (c *Catalog) fallen(ctx context.Context, way Way) (string, error) {
	keys := make([]Key, len(way))
	for i, s := range way {
		keys[i] = Key{dirSlot(s.Dir), s.Name}
	}
	recs, err := c.slots.Get(ctx, keys...)
	if err != nil {
		return "", err
	}
	for i, s := range way {
		id, err := c.dirIn(recs[i])
		if err != nil {
			return "", err
		}
		if id != s.Inode {
			return s.Name, nil
		}
	}
	return "", nil
}
