package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// AttrChange says which attributes become what; nil ones stay.
type AttrChange struct {
	Mode    *uint32 // permission bits, 07777
	UID     *uint32
	GID     *uint32
	MtimeNs *int64
	Expires *int64 // when the name ends to be there, as Entry.ExpiresNs
	XAttr   *XAttrChange
}

// SetAttr changes the attributes of a name that stands for inode, and returns
// the entry as it is then. Its ctime is now. ErrNotFound: the name is gone, or
// stands for something else. What XAttrs.Apply returns.
func (c *Catalog) SetAttr(ctx context.Context, dir InodeID, name string, inode InodeID, change AttrChange) (Entry, error) {
	e, err := c.setAttr(ctx, dir, name, inode, change)
	if err == nil && e.Kind == KindDir && !change.onlyXAttr() {
		// The entry counts; the directory's own record keeps step.
		_, err = c.SetDirAttr(ctx, inode, change)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("set attributes of %q: %w", name, err)
	}
	return e, nil
}

func (c *Catalog) setAttr(ctx context.Context, dir InodeID, name string, inode InodeID, change AttrChange) (Entry, error) {
	key := Key{dirSlot(dir), name}
	for {
		recs, err := c.slots.Get(ctx, key)
		if err == nil && recs[0].Value == nil {
			err = ErrNotFound
		}
		if err != nil {
			return Entry{}, err
		}
		e, mv, err := c.moving(recs[0])
		if mv != nil {
			if err := c.settle(ctx, Place{dir, name}, recs[0], mv); err != nil {
				return Entry{}, err
			}
			continue
		}
		if err == nil && e.Ended(time.Now()) {
			err = ErrNotFound
		}
		if err == nil && e.Inode != inode {
			err = fmt.Errorf("it is another file now: %w", ErrNotFound)
		}
		if err != nil {
			return Entry{}, err
		}
		if e, err = change.Apply(e); err != nil {
			return Entry{}, err
		}
		b, err := MarshalEntry(e, recs[0].Value)
		if err != nil {
			return Entry{}, err
		}
		e.Version, err = c.slots.Apply(ctx, key.Slot, []If{{Field: name, Version: e.Version}}, []Set{{name, b}})
		if err == nil {
			c.Timed(dir, e.ExpiresNs)
		}
		if !errors.Is(err, ErrConflict) {
			return e, err
		}
	}
}

// SetDirAttr changes the attributes in a directory's own record: those of the
// root, which has no entry. ErrNotFound: it was removed.
func (c *Catalog) SetDirAttr(ctx context.Context, dir InodeID, change AttrChange) (DirInfo, error) {
	var d DirInfo
	at, err := c.rewrite(ctx, Key{dirSlot(dir), self}, func(old Record) ([]byte, error) {
		var err error
		if d, err = dirOf(dir, old); err != nil {
			return nil, err
		}
		change.to(&d.Mode, &d.UID, &d.GID, &d.MtimeNs)
		d.CtimeNs = time.Now().UnixNano()
		return marshalDir(d, old.Value)
	})
	if err != nil {
		return DirInfo{}, fmt.Errorf("set attributes of directory %016x: %w", uint64(dir), err)
	}
	d.Version = at
	return d, nil
}

// Apply returns the entry with the change made. Its ctime is now. Errors are
// those of XAttrs.Apply, and leave the entry as it is.
func (a AttrChange) Apply(e Entry) (Entry, error) {
	if a.XAttr != nil {
		x, err := e.XAttrs.Apply(*a.XAttr)
		if err != nil {
			return e, err
		}
		e.XAttrs = x
	}
	if a.Expires != nil {
		e.ExpiresNs = *a.Expires
	}
	a.to(&e.Mode, &e.UID, &e.GID, &e.MtimeNs)
	e.CtimeNs = time.Now().UnixNano()
	return e, nil
}

// onlyXAttr reports whether nothing changes that a directory's own record has.
func (a AttrChange) onlyXAttr() bool {
	a.XAttr, a.Expires = nil, nil
	return a == AttrChange{}
}

// to makes the change.
func (a AttrChange) to(mode, uid, gid *uint32, mtime *int64) {
	for _, v := range []struct{ from, to *uint32 }{{a.Mode, mode}, {a.UID, uid}, {a.GID, gid}} {
		if v.from != nil {
			*v.to = *v.from
		}
	}
	if a.MtimeNs != nil {
		*mtime = *a.MtimeNs
	}
}
