package cache

import (
	"context"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// SourceState says whether a registered file is still what was registered.
type SourceState int

// The states of a registered file.
const (
	SourceOK      SourceState = iota + 1
	SourceChanged             // it was modified, or another file stands there
	SourceGone                // nothing that could be read stands there
)

// String returns ok, changed or gone.
func (s SourceState) String() string {
	switch s {
	case SourceOK:
		return "ok"
	case SourceChanged:
		return "changed"
	case SourceGone:
		return "gone"
	}
	return fmt.Sprintf("state %d", int(s))
}

// Source returns how a registered file is, by its attributes alone, and its
// size now; false if the object is not registered here. A file that cannot be
// examined counts as gone.
func (c *Cache) Source(id chunk.ObjectID) (state SourceState, size int64, ok bool) {
	r, ok, err := c.places.find(id)
	if !ok || err != nil {
		return 0, 0, false
	}
	var st unix.Stat_t
	if err := unix.Lstat(r.path, &st); err != nil {
		return SourceGone, 0, true
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return SourceGone, 0, true
	case r.id.differs(identity(&st)) != "":
		return SourceChanged, st.Size, true
	}
	return SourceOK, st.Size, true
}

// OpenFetched is Open of the cache's own copy of an object, made if there is
// none, although the object may be registered here: its source cannot be read.
func (c *Cache) OpenFetched(ctx context.Context, o chunk.Object) (chunk.File, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open object: %w", err)
	}
	if o.Size == 0 {
		return nil, fmt.Errorf("open object %s: an empty object has no file", o.ID.Short())
	}
	e, f, err := c.acquire(ctx, o.ID, &o)
	if err != nil {
		return nil, err
	}
	return &handle{file: f, entry: e}, nil
}
