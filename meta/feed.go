package meta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// FromOldest is the position of the oldest change that a store still knows.
const FromOldest = "oldest"

// ErrNoHistory: the store keeps no changes that a Feed could begin with, or
// tells of none.
var ErrNoHistory = errors.New("no history of changes")

// Change is what one Apply, or the end of a lease, changed in a slot, as a Feed
// tells it.
type SlotChange struct {
	Slot   Slot // empty: nothing changed, and the feed has come to Position
	Events []Event
	// Before are the values that the fields of Events had, in their order; nil
	// for a field that was not there. Nil as a whole: they are not known.
	Before [][]byte
	// Position is where to go on after this change.
	Position string
	// At is when the change was made by the store's clock; zero: not known.
	At time.Time
	// Lost, if not empty, says why changes before this one are missing.
	Lost string
}

// StreamOptions are those of the bounded stream that Redis keeps of what happens.
type StreamOptions struct {
	On     bool
	Key    string        // empty: one below the store's prefix
	MaxLen int           // about how many changes are kept; 0: DefaultStreamMaxLen
	Batch  int           // changes read at once; 0: DefaultStreamBatch
	Block  time.Duration // longest wait of one request for new ones; 0: DefaultStreamBlock
}

// Defaults of StreamOptions.
const (
	DefaultStreamMaxLen = 100_000
	DefaultStreamBatch  = 100
	DefaultStreamBlock  = time.Second
)

// Sweeper is a store in which records whose leases have run out go only when
// somebody looks.
type Sweeper interface {
	// Sweep looks at slots that may hold such records.
	Sweep(ctx context.Context, slots ...Slot) error
}

// FollowOptions say which changes a Feed tells.
type FollowOptions struct {
	// From is a position that an earlier SlotChange had: what comes after it is
	// told. Empty: what comes from now on. FromOldest.
	From string
	// Again: the change at From is told, too.
	Again bool
	// Past: only what has been when Follow begins.
	Past bool
}

// Feed is a store that can tell of the changes of all its directories, sets and
// nodes. It costs the store nothing while nobody follows, but for what Options
// of the store ask for.
type Feed interface {
	// Follow calls on with every change, in an order in which each slot's
	// changes are as they were made; first, as soon as nothing can be missed
	// any more, with a SlotChange without a slot. It returns nil when ctx ends,
	// and at the end of what was asked for; the error of on; a *GapError;
	// ErrNoHistory; ErrUnavailable when the store is out of reach, or the
	// connection was lost: then it may be called again with the position of
	// the last change. on may take its time. Calls of on do not overlap.
	Follow(ctx context.Context, opts FollowOptions, on func(SlotChange) error) error
}

// GapError is the ErrGap of a Feed.
type GapError struct {
	After  string // the position after which changes are missing
	Oldest string // the position to go on from; empty: from now on
	Why    string
}

func (e *GapError) Error() string {
	s := fmt.Sprintf("%v after position %s: %s", ErrGap, e.After, e.Why)
	if e.Oldest != "" {
		s += "; what came after position " + e.Oldest + " is still known"
	}
	return s
}

// Is makes a GapError an ErrGap.
func (e *GapError) Is(target error) bool { return target == ErrGap }
