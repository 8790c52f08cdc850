package meta

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// movingVersion is the version of an entry that is told while it is being
// moved. No record has it, so that nobody writes over the entry unread.
const movingVersion = 1<<63 - 1

// DirEvent is one change of a watched directory.
type DirEvent struct {
	Name  string
	Entry Entry
	Gone  bool // the name is no more; Entry has no meaning
	// Moving: it is being moved to another directory. If that does not end
	// soon, its mover has died: Finish.
	Moving bool
	At     uint64 // the directory's version after the change
}

// Watch calls on with every change of a directory's names after version since,
// in order and each change whole, until ctx ends (nil) or events were lost
// (ErrGap). An entry that cannot be read counts as gone, as in List. Calls do
// not overlap; a call without events says no more than its version.
func (c *Catalog) Watch(ctx context.Context, dir InodeID, since uint64, on func(at uint64, events []DirEvent)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wiped := false
	err := c.slots.Watch(ctx, dirSlot(dir), since, func(in []Event) {
		// Names that go with a store's records have not been removed.
		if wiped = wiped || losesSelf(in) && errors.Is(c.CheckStore(ctx), ErrOtherStore); wiped {
			cancel()
			return
		}
		out := make([]DirEvent, 0, len(in))
		for _, e := range in {
			if isName(e.Field) {
				out = append(out, c.dirEvent(dir, e))
			}
		}
		on(in[len(in)-1].SlotVersion, out)
	})
	if wiped {
		err = ErrGap
	}
	if err != nil {
		return fmt.Errorf("watch directory %016x: %w", uint64(dir), err)
	}
	return nil
}

// losesSelf reports whether a directory's own record goes: it was removed, or
// all of the store was.
func losesSelf(in []Event) bool {
	return slices.ContainsFunc(in, func(e Event) bool { return e.Field == self && e.Value == nil })
}

func (c *Catalog) dirEvent(dir InodeID, e Event) DirEvent {
	ev := DirEvent{Name: e.Field, At: e.SlotVersion, Gone: e.Value == nil}
	if ev.Gone {
		return ev
	}
	entry, mv, err := c.moving(e.Record)
	if err != nil {
		c.log.Warn("entry passed over", "dir", fmt.Sprintf("%016x", uint64(dir)), "err", err)
		ev.Gone = true
		return ev
	}
	ev.Entry, ev.Moving = entry, mv != nil
	if ev.Moving {
		ev.Entry.Version = movingVersion
	}
	return ev
}
