package meta

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// NewsKind says what happened.
type NewsKind uint8

// The kinds of News, and which of its fields they fill in.
const (
	NewsName     NewsKind = iota + 1 // Dir, Entry; Before, if another thing had the name
	NewsGone                         // Dir, Before
	NewsMoved                        // Dir, Entry, From; Before, if another thing had the name
	NewsDirMade                      // Dir: it has no name yet
	NewsDirGone                      // Dir
	NewsNodeUp                       // Node
	NewsNodeDown                     // Node
	NewsProvider
	NewsNoProvider // both: Set, Node.Node, Keeper, Complete
	NewsLost       // Why: what happened before this is missing
)

// News is one thing that happened.
type News struct {
	Kind     NewsKind
	Dir      InodeID
	Entry    Entry
	Before   *Entry
	From     Place
	Node     NodeInfo // of a provider the id alone
	Set      chunk.SetID
	Keeper   bool
	Complete bool
	Why      string
	Version  uint64    // of the slot, after it
	At       time.Time // by the store's clock; zero: not known
}

// feed returns the store's feed; nil if it has none.
func (c *Catalog) feed() Feed {
	f, _ := c.raw.(Feed)
	return f
}

// Follow calls on with what happens to names, nodes and providers, as
// Feed.Follow does with changes: what one change brought comes in one call,
// with the position after it, and a first call says that nothing is missed from
// there. Changes of attributes are not told, and records that cannot be read
// are passed over.
func (c *Catalog) Follow(ctx context.Context, opts FollowOptions, on func(position string, news []News) error) error {
	f := c.feed()
	if f == nil {
		return fmt.Errorf("follow the changes: %w: this store tells of none", ErrNoHistory)
	}
	ctx, cancel := context.WithCancel(ctx)
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	defer cancel()
	if sw, ok := c.raw.(Sweeper); ok && !opts.Past {
		sweeping.Go(func() { c.sweep(ctx, sw) })
	}
	err := f.Follow(ctx, opts, func(ch SlotChange) error {
		var news []News
		if ch.Lost != "" {
			news = append(news, News{Kind: NewsLost, Why: ch.Lost})
		}
		if ch.Slot != "" {
			news = append(news, c.news(ch)...)
		}
		if len(news) == 0 && ch.Slot != "" {
			return nil
		}
		for i := range news {
			news[i].At = ch.At
		}
		return on(ch.Position, news)
	})
	if err != nil {
		return fmt.Errorf("follow the changes: %w", err)
	}
	return nil
}

// sweepTime is how often records of nodes that ended without a word are looked
// for while somebody follows.
const sweepTime = 2 * time.Second

// sweep takes the records of dead nodes out of a store that does not do so by
// itself, until ctx ends.
func (c *Catalog) sweep(ctx context.Context, sw Sweeper) {
	tick := time.NewTicker(sweepTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var slots []Slot
		next, err := "", error(nil)
		for first := true; (first || next != "") && err == nil; first = false {
			var p Page
			if p, err = c.raw.List(ctx, rollSlot, next, 1000); err == nil {
				for _, r := range p.Records {
					if id, err := chunk.ParseNodeID(r.Field); err == nil {
						slots = append(slots, nodeSlot(id))
					}
				}
				next = p.Next
			}
		}
		if err == nil {
			err = sw.Sweep(ctx, slots...)
		}
		if err != nil && ctx.Err() == nil {
			c.log.Debug("dead nodes not looked for", "err", err)
		}
	}
}

// news returns what a change of a slot means.
func (c *Catalog) news(ch SlotChange) []News {
	kind, id, _ := strings.Cut(string(ch.Slot), "/")
	switch kind {
	case "d":
		if dir, ok := ch.Slot.dir(); ok {
			return c.dirNews(dir, ch)
		}
	case "n":
		if node, err := chunk.ParseNodeID(id); err == nil {
			return c.nodeNews(node, ch)
		}
	case "s":
		if set, err := chunk.ParseSetID(id); err == nil {
			return c.setNews(set, ch)
		}
	}
	return nil
}

// before returns what a field had; nil: it was not there, or it is not known.
func (ch SlotChange) before(i int) []byte {
	if i < len(ch.Before) {
		return ch.Before[i]
	}
	return nil
}

// nameChange is one changed name of a directory.
type nameChange struct {
	now, was   Entry
	there, had bool
	moving     bool // it is on its way to another directory now, or is being removed
	moved      bool // it was on its way, before
}

func (c *Catalog) nameChange(e Event, before []byte) (n nameChange, err error) {
	if e.Value != nil {
		var mv *move
		if n.now, mv, err = c.moving(e.Record); err != nil {
			return n, err
		}
		n.there, n.moving = true, mv != nil
	}
	if before != nil {
		var mv *move
		if n.was, mv, err = c.moving(Record{Slot: e.Slot, Field: e.Field, Value: before}); err != nil {
			return n, err
		}
		n.had, n.moved = true, mv != nil && !mv.removal()
	}
	return n, nil
}

// dirNews returns what a change of a directory means.
func (c *Catalog) dirNews(dir InodeID, ch SlotChange) (out []News) {
	var from *Place              // of what a move brought here
	left := map[InodeID]string{} // names that were taken away
	var changes []nameChange
	for i, e := range ch.Events {
		switch {
		case e.Field == self:
			out = append(out, selfNews(dir, e, ch.before(i))...)
		case strings.HasPrefix(e.Field, txPrefix) && e.Value != nil:
			if d, err := unmarshalDecision(e.Value); err == nil && d.outcome == moveDone {
				from = &d.from
			}
		case isName(e.Field):
			n, err := c.nameChange(e, ch.before(i))
			if err != nil {
				c.log.Warn("change passed over", "dir", fmt.Sprintf("%016x", uint64(dir)), "err", err)
				continue
			}
			if n.had && !n.there && !n.moved {
				left[n.was.Inode] = e.Field
			}
			changes = append(changes, n)
		}
	}
	for _, n := range changes {
		if name, ok := left[n.now.Inode]; ok && n.there && name != n.now.Name {
			from = &Place{dir, name}
		}
	}
	for _, n := range changes {
		out = append(out, n.news(dir, from, ch.Events[0].SlotVersion)...)
	}
	return out
}

// news returns what became of a name. from is where the change that brought
// it here took something away; nil: nowhere.
func (n nameChange) news(dir InodeID, from *Place, version uint64) []News {
	ev := News{Dir: dir, Version: version}
	if n.had {
		ev.Before = &n.was
	}
	switch {
	case !n.there && n.moved, n.there && n.moving:
		return nil // told where it goes to
	case !n.there && !n.had:
		return nil
	case !n.there && from != nil && from.Dir == dir && from.Name == n.was.Name:
		return nil
	case !n.there:
		ev.Kind = NewsGone
	case from != nil:
		ev.Kind, ev.Entry, ev.From = NewsMoved, n.now, *from
	case n.had && n.was.SameContent(n.now):
		return nil
	default:
		ev.Kind, ev.Entry = NewsName, n.now
	}
	return []News{ev}
}

// selfNews returns what became of a directory's own record.
func selfNews(dir InodeID, e Event, before []byte) []News {
	ev := News{Kind: NewsDirMade, Dir: dir, Version: e.SlotVersion}
	if e.Value == nil {
		ev.Kind = NewsDirGone
		return []News{ev}
	}
	_, dead, err := unmarshalDir(dir, e.Value, 0)
	switch {
	case err != nil:
		return nil
	case dead:
		ev.Kind = NewsDirGone
	case before != nil:
		return nil // attributes
	}
	return []News{ev}
}

// nodeNews returns what a change of a node's record means.
func (c *Catalog) nodeNews(id chunk.NodeID, ch SlotChange) (out []News) {
	for i, e := range ch.Events {
		if e.Field != self || bytes.Equal(e.Value, ch.before(i)) && e.Value != nil {
			continue
		}
		ev := News{Kind: NewsNodeUp, Node: NodeInfo{Node: id}, Version: e.SlotVersion}
		value := e.Value
		if value == nil {
			ev.Kind, value = NewsNodeDown, ch.before(i)
		}
		if info, err := unmarshalNode(id, value); err == nil {
			ev.Node = info
		}
		if was, err := unmarshalNode(id, ch.before(i)); err == nil && e.Value != nil && was.Incarnation == ev.Node.Incarnation {
			continue
		}
		out = append(out, ev)
	}
	return out
}

// setNews returns what a change of a set's providers means.
func (c *Catalog) setNews(set chunk.SetID, ch SlotChange) (out []News) {
	for i, e := range ch.Events {
		ev := News{Kind: NewsProvider, Set: set, Version: e.SlotVersion}
		value := e.Value
		if value == nil {
			ev.Kind, value = NewsNoProvider, ch.before(i)
		}
		if e.Value == nil && value == nil {
			continue // it was none
		}
		id, p, err := unmarshalProvider(e.Field, value)
		if err != nil {
			continue
		}
		if _, was, err := unmarshalProvider(e.Field, ch.before(i)); ch.before(i) != nil && err == nil && e.Value != nil && was == p {
			continue
		}
		ev.Node.Node, ev.Keeper, ev.Complete = id, p.keeper, p.complete
		out = append(out, ev)
	}
	return out
}
