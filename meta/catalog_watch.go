package meta

import (
	"context"
	"fmt"
)

// DirEvent is one change of a watched directory.
type DirEvent struct {
	Name  string
	Entry Entry
	Gone  bool   // the name is no more; Entry has no meaning
	At    uint64 // the directory's version after the change
}

// Watch calls on with every change of a directory's names after version since,
// in order and each change whole, until ctx ends (nil) or events were lost
// (ErrGap). An entry that cannot be read counts as gone, as in List. Calls do
// not overlap; a call without events says no more than its version.
func (c *Catalog) Watch(ctx context.Context, dir InodeID, since uint64, on func(at uint64, events []DirEvent)) error {
	err := c.slots.Watch(ctx, dirSlot(dir), since, func(in []Event) {
		out := make([]DirEvent, 0, len(in))
		for _, e := range in {
			if e.Field != self {
				out = append(out, c.dirEvent(dir, e))
			}
		}
		on(in[len(in)-1].SlotVersion, out)
	})
	if err != nil {
		return fmt.Errorf("watch directory %016x: %w", uint64(dir), err)
	}
	return nil
}

func (c *Catalog) dirEvent(dir InodeID, e Event) DirEvent {
	ev := DirEvent{Name: e.Field, At: e.SlotVersion, Gone: e.Value == nil}
	if ev.Gone {
		return ev
	}
	entry, err := c.entry(e.Record)
	if err != nil {
		c.log.Warn("entry passed over", "dir", fmt.Sprintf("%016x", uint64(dir)), "err", err)
		ev.Gone = true
		return ev
	}
	ev.Entry = entry
	return ev
}
