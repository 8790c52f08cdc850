package meta

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A listing asks for listPage entries first and for twice as many each time, up
// to listPageMost: etcd counts all that is left of a directory for every page
// (100,000 entries took 0.78 s in pages of 4,000 and 0.36 s in pages of 16,000
// or 32,000).
const (
	listPage     = 4000
	listPageMost = 32000
	// Where entries have many extended attributes the pages that follow are
	// shorter: about listPageBytes, but not below listPageLeast entries.
	listPageBytes = 8 << 20
	listPageLeast = 250
)

// NewInodeID returns a fresh random id for a file or a directory.
func NewInodeID() InodeID {
	var b [8]byte
	for {
		rand.Read(b[:])
		if id := InodeID(binary.LittleEndian.Uint64(b[:])); id > RootDir {
			return id
		}
	}
}

// Lookup returns the entry of a name. ErrNotFound: there is none.
func (c *Catalog) Lookup(ctx context.Context, dir InodeID, name string) (Entry, error) {
	e, _, err := c.LookupAt(ctx, dir, name)
	return e, err
}

// LookupAt is Lookup that also returns the directory's version at the moment
// of the answer. The version is right when the error is ErrNotFound, too. A
// move or a removal that it finds half done it finishes first.
func (c *Catalog) LookupAt(ctx context.Context, dir InodeID, name string) (Entry, uint64, error) {
	e, at, _, err := c.lookupBy(ctx, nil, dir, name)
	return e, at, err
}

// lookupBy is LookupAt that reads the directories on a way at the same time: moved
// is what standing says of it. It says nothing when err is neither nil nor
// ErrNotFound.
func (c *Catalog) lookupBy(ctx context.Context, way Way, dir InodeID, name string) (e Entry, at uint64, moved, err error) {
	if err := CheckName(name); err != nil {
		return Entry{}, 0, nil, err
	}
	slot := dirSlot(dir)
	keys := append([]Key{{slot, ""}, {slot, name}}, way.keys()...)
	for {
		recs, err := c.slots.Get(ctx, keys...)
		if err != nil {
			return Entry{}, 0, nil, fmt.Errorf("look up %q: %w", name, err)
		}
		at, moved = recs[0].Version, c.standing(way, recs[2:])
		if recs[1].Value == nil {
			return Entry{}, at, moved, fmt.Errorf("look up %q: %w", name, ErrNotFound)
		}
		e, again, err := c.found(ctx, dir, recs[1])
		if !again {
			return e, at, moved, err
		}
	}
}

// found is stand for who only wants to know: a name whose time is over is not
// there, and its record is left to RunExpiry.
func (c *Catalog) found(ctx context.Context, dir InodeID, r Record) (e Entry, again bool, err error) {
	if e, mv, err := c.moving(r); err == nil && mv == nil && e.Kind != KindDir {
		if e.Ended(time.Now()) {
			c.met(dir)
			return Entry{}, false, fmt.Errorf("look up %q: its time is over: %w", e.Name, ErrNotFound)
		}
		return e, false, nil
	}
	return c.stand(ctx, dir, r)
}

// entry reads a record as an entry.
func (c *Catalog) entry(r Record) (Entry, error) {
	return UnmarshalEntry(r.Field, r.Value, r.Version, c.chunkSize.Load())
}

// moving reads a record as an entry, and where it is being moved to; nil if it
// is not.
func (c *Catalog) moving(r Record) (Entry, *move, error) { return c.movingBy(new(entryReader), r) }

// movingBy is moving for who reads many.
func (c *Catalog) movingBy(by *entryReader, r Record) (Entry, *move, error) {
	e, mv, err := by.moving(r.Field, r.Value, r.Version, c.chunkSize.Load())
	if c.readOnly() {
		mv = nil // it is for others to finish
	}
	return e, mv, err
}

// readOnly reports whether the store is not ours to write.
func (c *Catalog) readOnly() bool {
	s := c.store.Load()
	return s != nil && s.ReadOnly
}

// Dir returns a directory's own record. ErrNotFound: it was removed.
func (c *Catalog) Dir(ctx context.Context, dir InodeID) (DirInfo, error) {
	recs, err := c.slots.Get(ctx, Key{dirSlot(dir), self})
	if err != nil {
		return DirInfo{}, fmt.Errorf("read directory %016x: %w", uint64(dir), err)
	}
	return dirOf(dir, recs[0])
}

// dirOf reads the record of a directory that must be alive.
func dirOf(dir InodeID, r Record) (DirInfo, error) {
	if r.Value == nil {
		return DirInfo{}, fmt.Errorf("directory %016x: %w", uint64(dir), ErrNotFound)
	}
	d, dead, err := unmarshalDir(dir, r.Value, r.Version)
	if err == nil && dead {
		err = fmt.Errorf("directory %016x was removed: %w", uint64(dir), ErrNotFound)
	}
	return d, err
}

// DirVersion returns the version of a directory: it grows with every change of
// an entry.
func (c *Catalog) DirVersion(ctx context.Context, dir InodeID) (uint64, error) {
	v, err := c.slots.Version(ctx, dirSlot(dir))
	if err != nil {
		return 0, fmt.Errorf("read version of directory %016x: %w", uint64(dir), err)
	}
	return v, nil
}

// dirVersions is DirVersion of many, in their order.
func (c *Catalog) dirVersions(ctx context.Context, dirs []InodeID) ([]uint64, error) {
	keys := make([]Key, len(dirs))
	for i, d := range dirs {
		keys[i] = Key{Slot: dirSlot(d)}
	}
	recs, err := c.slots.Get(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("read versions of directories: %w", err)
	}
	out := make([]uint64, len(recs))
	for i, r := range recs {
		out[i] = r.Version
	}
	return out, nil
}

// List calls fn with the entries of a directory, some thousands at a time, in
// no order, and returns the directory's version that they were read at.
// Entries that cannot be read are passed over with a line in the log. ErrGap:
// the store forgot the moment of the first page; begin again. fn's error ends
// the listing.
func (c *Catalog) List(ctx context.Context, dir InodeID, fn func([]Entry) error) (uint64, error) {
	version, err := c.list(ctx, dir, fn)
	if err != nil {
		return 0, fmt.Errorf("list directory %016x: %w", uint64(dir), err)
	}
	return version, nil
}

func (c *Catalog) list(ctx context.Context, dir InodeID, fn func([]Entry) error) (version uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ahead := c.pages(ctx, dirSlot(dir))
	defer func() {
		cancel()
		for range ahead { // its end: nothing is asked for any more
		}
	}()
	first := true
	for p := range ahead {
		if p.err != nil {
			return 0, p.err
		}
		if first {
			version, first = p.Version, false
		}
		entries, err := c.entries(ctx, dir, p.Records)
		if err == nil {
			err = fn(entries)
		}
		if err != nil {
			return 0, err
		}
	}
	return version, ctx.Err()
}

// pageOrError is one page of a listing, or why there are no more.
type pageOrError struct {
	Page
	err error
}

// pages reads a slot, one page ahead of who takes them. The channel is closed
// after the last page, an error, or the end of ctx.
func (c *Catalog) pages(ctx context.Context, slot Slot) <-chan pageOrError {
	out := make(chan pageOrError)
	go func() {
		defer close(out)
		next, limit := "", listPage
		for first := true; first || next != ""; first = false {
			p, err := c.slots.List(ctx, slot, next, limit)
			select {
			case out <- pageOrError{p, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			next, limit = p.Next, nextLimit(limit, p.Records)
		}
	}()
	return out
}

// nextLimit returns how long a page is to be after one with these records.
func nextLimit(limit int, recs []Record) int {
	size := 1
	for _, r := range recs {
		size += len(r.Value)
	}
	return max(min(2*limit, listPageMost, listPageBytes*len(recs)/size), listPageLeast)
}

// entries reads records as entries, without those that are no names, those that
// cannot be read (one bad record must not hide the others) and those whose time is
// over. Moves that are under way are finished; their entries are told as they were.
func (c *Catalog) entries(ctx context.Context, dir InodeID, recs []Record) ([]Entry, error) {
	out := make([]Entry, 0, len(recs))
	now, ended := time.Now(), false
	var by entryReader
	for _, r := range recs {
		if !isName(r.Field) {
			c.leftover(ctx, dir, r)
			continue
		}
		e, mv, err := c.movingBy(&by, r)
		if err != nil {
			c.log.Warn("entry passed over", "dir", fmt.Sprintf("%016x", uint64(dir)), "err", err)
			continue
		}
		if mv != nil {
			err := c.settle(ctx, Place{dir, e.Name}, r, mv)
			if errors.Is(err, ErrFormat) {
				c.log.Warn("move not finished", "err", err)
			} else if err != nil {
				return nil, err
			}
		}
		if e.over(now) {
			ended = true
			if e.Kind != KindDir {
				continue
			}
		}
		out = append(out, e)
	}
	if ended {
		c.met(dir)
	}
	return out, nil
}

// Attrs are the attributes of a new directory.
type Attrs struct {
	Mode    uint32 // permission bits, 07777
	UID     uint32
	GID     uint32
	MtimeNs int64 // 0: now
}

// NewDir makes a directory that no name stands for yet: a tree is built
// bottom-up, and linking its top makes all of it appear at once. One that is
// never linked is garbage; DiscardDir removes it.
func (c *Catalog) NewDir(ctx context.Context, parent InodeID, a Attrs) (InodeID, error) {
	id := NewInodeID()
	mtime := a.mtime()
	b, err := marshalDir(DirInfo{Parent: parent, Mode: a.Mode, UID: a.UID, GID: a.GID, MtimeNs: mtime, CtimeNs: mtime}, nil)
	if err != nil {
		return 0, err
	}
	if _, err := c.slots.Apply(ctx, dirSlot(id), []If{{Field: self, Absent: true}}, []Set{{self, b}}); err != nil {
		return 0, fmt.Errorf("make a directory: %w", err)
	}
	return id, nil
}

func (a Attrs) mtime() int64 {
	if a.MtimeNs == 0 {
		return time.Now().UnixNano()
	}
	return a.MtimeNs
}

// Mkdir makes a directory under a name. Errors are those of Link.
func (c *Catalog) Mkdir(ctx context.Context, dir InodeID, name string, a Attrs) (Entry, error) {
	if err := CheckName(name); err != nil {
		return Entry{}, err
	}
	a.MtimeNs = a.mtime()
	id, err := c.NewDir(ctx, dir, a)
	if err != nil {
		return Entry{}, err
	}
	e, err := c.Link(ctx, dir, Entry{
		Name: name, Kind: KindDir, Inode: id, Mode: a.Mode, UID: a.UID, GID: a.GID,
		MtimeNs: a.MtimeNs, CtimeNs: a.MtimeNs,
	})
	if errors.Is(err, ErrExist) || errors.Is(err, ErrNotFound) {
		c.discard(ctx, id)
	}
	return e, err
}

// discard removes a directory that was just made and that no name stands for.
func (c *Catalog) discard(ctx context.Context, id InodeID) {
	if err := c.DiscardDir(ctx, id); err != nil {
		c.log.Warn("a directory without a name is left behind", "err", err)
	}
}

// Link adds a name to a directory and returns the entry with its version.
// ErrExist: the name is taken. ErrNotFound: the directory was removed.
func (c *Catalog) Link(ctx context.Context, dir InodeID, e Entry) (Entry, error) {
	b, err := MarshalEntry(e, nil)
	if err != nil {
		return Entry{}, err
	}
	for {
		v, err := c.slots.Apply(ctx, dirSlot(dir), linkable(e.Name), []Set{{e.Name, b}})
		if errors.Is(err, ErrConflict) {
			if err = c.whyNotLinked(ctx, dir, e.Name); err == nil {
				continue
			}
		}
		if err != nil {
			return Entry{}, fmt.Errorf("create %q: %w", e.Name, err)
		}
		e.Version = v
		c.Timed(dir, e.ExpiresNs)
		return e, nil
	}
}

// linkable are the conditions of adding names: the directory is alive (Rmdir
// deletes its own record first) and none of the names is there.
func linkable(names ...string) []If {
	conds := []If{{Field: self, Present: true}}
	for _, n := range names {
		conds = append(conds, If{Field: n, Absent: true})
	}
	return conds
}

// whyNotLinked finds which condition of linkable did not hold; nil: they may
// hold now.
func (c *Catalog) whyNotLinked(ctx context.Context, dir InodeID, name string) error {
	recs, err := c.slots.Get(ctx, Key{dirSlot(dir), self}, Key{dirSlot(dir), name})
	switch {
	case err != nil:
		return err
	case recs[0].Value == nil:
		return fmt.Errorf("its directory was removed: %w", ErrNotFound)
	case recs[1].Value == nil:
		return nil
	}
	_, again, err := c.stand(ctx, dir, recs[1])
	switch {
	case again:
		return nil
	case err == nil, errors.Is(err, ErrFormat):
		return ErrExist
	}
	return err
}

// Replace writes an entry over the one of the same name that has version
// ifVersion, which must not be 0. ErrConflict: it has another one.
// ErrNotFound: the name is gone.
func (c *Catalog) Replace(ctx context.Context, dir InodeID, e Entry, ifVersion uint64) (Entry, error) {
	if ifVersion == 0 {
		return Entry{}, fmt.Errorf("replace %q: no version to replace", e.Name)
	}
	r, err := c.settled(ctx, dir, e.Name)
	switch {
	case err != nil:
	case r.Value == nil:
		err = ErrNotFound
	case r.Version != ifVersion:
		err = ErrConflict
	}
	if err != nil {
		return Entry{}, fmt.Errorf("replace %q: %w", e.Name, err)
	}
	b, err := MarshalEntry(e, r.Value) // what a newer program wrote into the record is kept
	if err != nil {
		return Entry{}, err
	}
	v, err := c.slots.Apply(ctx, dirSlot(dir), []If{{Field: e.Name, Version: ifVersion}}, []Set{{e.Name, b}})
	if err != nil {
		return Entry{}, fmt.Errorf("replace %q: %w", e.Name, err)
	}
	e.Version = v
	c.Timed(dir, e.ExpiresNs)
	return e, nil
}
