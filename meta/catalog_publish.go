package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// PublishIf says over what a file may be published.
type PublishIf struct {
	// Over is the entry that the caller believes to have the name; nil:
	// nothing has. If that is so the publish takes one request; if not, what
	// has the name is read, and the rest of PublishIf decides.
	Over *Entry
	// Known: the file was published before. It is published again only over
	// an entry of its own file id; without it, over any file.
	Known bool
	// Exclusive: a file that is not Known is published under no name that
	// another file has (ErrExist).
	Exclusive bool
	// SetAttrs: a Known file's mode, owner and group become those of the
	// entry given; without it those that the entry in place has stay, since
	// others may have changed them. Its extended attributes stay in any case.
	SetAttrs bool
}

// Publish writes the entry of a file over what has its name, and returns it
// with its version, and what it replaced: nil if there was nothing. Publishing
// what is published already changes nothing, so that it may be tried again
// when the store did not answer.
//
// ErrStale: a Known file has no name any more, or another file has it.
// ErrExist: see Exclusive, and a symlink is never replaced. ErrIsDir.
// ErrNotFound: the directory was removed.
func (c *Catalog) Publish(ctx context.Context, dir InodeID, e Entry, p PublishIf) (Entry, *Entry, error) {
	out, old, err := c.publish(ctx, dir, e, p)
	if err != nil {
		return Entry{}, nil, fmt.Errorf("publish %q: %w", e.Name, err)
	}
	return out, old, nil
}

func (c *Catalog) publish(ctx context.Context, dir InodeID, e Entry, p PublishIf) (Entry, *Entry, error) {
	if e.Kind != KindFile {
		return Entry{}, nil, fmt.Errorf("a %v cannot be published", e.Kind)
	}
	over := p.Over
	if over != nil && over.Ended(time.Now()) {
		over = nil
	}
	read := over == nil && p.Known || over != nil && (over.Version == 0 || over.Name != e.Name)
	for {
		if read {
			var err error
			if over, err = c.nameOf(ctx, dir, e.Name); err != nil {
				return Entry{}, nil, err
			}
		}
		out, done, err := p.over(e, over)
		if (done || err != nil) && !read {
			read = true // the caller may be wrong about what has the name
			continue
		}
		if done || err != nil {
			return out, over, err
		}
		b, err := MarshalEntry(out, nil)
		if err != nil {
			return Entry{}, nil, err
		}
		conds := linkable(e.Name)
		if over != nil {
			conds = []If{{Field: e.Name, Version: over.Version}}
		}
		out.Version, err = c.slots.Apply(ctx, dirSlot(dir), conds, []Set{{e.Name, b}})
		if err == nil {
			c.Timed(dir, out.ExpiresNs)
		}
		if !errors.Is(err, ErrConflict) {
			return out, over, err
		}
		read = true
	}
}

// nameOf returns what has a name; nil: nothing. ErrNotFound: the directory was
// removed.
func (c *Catalog) nameOf(ctx context.Context, dir InodeID, name string) (*Entry, error) {
	slot := dirSlot(dir)
	for {
		recs, err := c.slots.Get(ctx, Key{slot, self}, Key{slot, name})
		if err == nil {
			_, err = dirOf(dir, recs[0])
		}
		if err != nil || recs[1].Value == nil {
			return nil, err
		}
		e, again, err := c.stand(ctx, dir, recs[1])
		if !again {
			return &e, err
		}
	}
}

// over returns the entry to write for e where old has the name, or why it may
// not be written. done: it is there already.
func (p PublishIf) over(e Entry, old *Entry) (out Entry, done bool, err error) {
	switch {
	case old == nil && p.Known:
		return e, false, fmt.Errorf("its name was removed: %w", ErrStale)
	case old == nil:
		return e, false, nil
	case old.Kind == KindDir && p.Known:
		return e, false, fmt.Errorf("a directory has its name: %w", ErrStale)
	case old.Kind == KindDir:
		return e, false, ErrIsDir
	case old.Inode == e.Inode && old.Kind == KindFile:
		return p.again(e, *old)
	case p.Known:
		return e, false, fmt.Errorf("another file has its name: %w", ErrStale)
	case p.Exclusive, old.Kind != KindFile:
		return e, false, ErrExist
	}
	return e, false, nil
}

// again returns the entry of a file that is published once more.
func (p PublishIf) again(e, old Entry) (Entry, bool, error) {
	e.unknown = old.unknown
	if p.Known {
		e.XAttrs = old.XAttrs // who sets them does so on the name
	}
	if p.Known && !p.SetAttrs {
		e.Mode, e.UID, e.GID = old.Mode, old.UID, old.GID
	}
	if same := e.Object.ID == old.Object.ID && !e.Object.ID.IsZero(); same && !p.SetAttrs {
		return old, true, nil
	}
	return e, false, nil
}
