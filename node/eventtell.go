package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// The types of events.
const (
	eventPublish      = "publish"
	eventReplace      = "replace"
	eventUnpublish    = "unpublish"
	eventRename       = "rename"
	eventMkdir        = "mkdir"
	eventRmdir        = "rmdir"
	eventNodeUp       = "node-up"
	eventNodeDown     = "node-down"
	eventProviderUp   = "provider-up"
	eventProviderDown = "provider-down"
	eventGap          = "gap"
	eventStoreDown    = "store-down"
	eventStoreUp      = "store-up"
)

const (
	// eventBatch is the most events in one message.
	eventBatch = 500
	// knownSets is how many sets a follower remembers the holder of.
	knownSets = 10_000
)

// teller turns what the store tells into events. Not safe for concurrent use.
type teller struct {
	catalog *meta.Catalog
	paths   *eventPaths
	under   string // only names at or below this path; "" all
	all     bool   // nothing was asked for in particular: nodes and providers, too
	send    func(*nodepb.EventsReply) error

	names   map[chunk.NodeID]string
	holders map[chunk.SetID]chunk.NodeID

	// of the change that is being told:
	position string
	skip     int // events that were told before
	told     int // events so far
	batch    []*nodepb.Event
}

// begin begins a change; of its events the first skip are passed over.
func (t *teller) begin(position string, skip int) { t.position, t.skip, t.told = position, skip, 0 }

// add takes an event. The last one of a change has the change's position,
// others one that says how far they are in it.
func (t *teller) add(e *nodepb.Event) error {
	t.told++
	if t.told <= t.skip || !t.wanted(e) {
		return nil
	}
	if e.Position = t.position; t.position != "" {
		e.Position = fmt.Sprintf("%s.%d", t.position, t.told)
	}
	if e.TimeUnixNs == 0 {
		e.TimeUnixNs = time.Now().UnixNano()
	}
	t.batch = append(t.batch, e)
	if len(t.batch) < eventBatch {
		return nil
	}
	last := t.batch[len(t.batch)-1]
	t.batch = t.batch[:len(t.batch)-1] // it may be the change's last
	err := t.flush()
	t.batch = append(t.batch, last)
	return err
}

// end ends a change and sends what there is of it.
func (t *teller) end() error {
	if n := len(t.batch); n > 0 && t.position != "" && strings.HasPrefix(t.batch[n-1].Position, t.position+".") {
		t.batch[n-1].Position = t.position
	}
	return t.flush()
}

func (t *teller) flush() error {
	if len(t.batch) == 0 {
		return nil
	}
	err := t.send(&nodepb.EventsReply{Events: t.batch})
	t.batch = nil
	return err
}

// wanted reports whether an event was asked for.
func (t *teller) wanted(e *nodepb.Event) bool {
	switch e.Type {
	case eventGap, eventStoreDown, eventStoreUp:
		return true
	case eventNodeUp, eventNodeDown, eventProviderUp, eventProviderDown:
		return t.all
	}
	return t.below(string(e.Path)) || e.Type == eventRename && t.below(string(e.FromPath))
}

func (t *teller) below(p string) bool {
	return t.under == "" || p == t.under || strings.HasPrefix(p, t.under+"/")
}

// tell adds the events of one thing that happened.
func (t *teller) tell(ctx context.Context, n meta.News) error {
	switch n.Kind {
	case meta.NewsLost:
		t.paths = newEventPaths(t.catalog)
		return t.add(&nodepb.Event{Type: eventGap, Note: n.Why, TimeUnixNs: stamp(n)})
	case meta.NewsDirMade:
		t.paths.made(n.Dir)
	case meta.NewsDirGone:
		t.paths.gone(n.Dir)
	case meta.NewsNodeUp, meta.NewsNodeDown:
		return t.node(n)
	case meta.NewsProvider, meta.NewsNoProvider:
		return t.provider(ctx, n)
	default:
		return t.name(ctx, n)
	}
	return nil
}

func stamp(n meta.News) int64 {
	if n.At.IsZero() {
		return 0
	}
	return n.At.UnixNano()
}

func (t *teller) node(n meta.News) error {
	e := &nodepb.Event{Type: eventNodeUp, Node: n.Node.Node.String(), NodeName: n.Node.Name, TimeUnixNs: stamp(n)}
	if n.Node.Name != "" {
		t.names[n.Node.Node] = n.Node.Name
	} else {
		e.NodeName = t.names[n.Node.Node]
	}
	if n.Kind == meta.NewsNodeDown {
		e.Type = eventNodeDown
	}
	return t.add(e)
}

func (t *teller) provider(ctx context.Context, n meta.News) error {
	e := &nodepb.Event{
		Type: eventProviderUp, Set: n.Set.String(), Node: n.Node.Node.String(), NodeName: t.nameOf(ctx, n.Node.Node),
		Keeper: n.Keeper, Complete: n.Complete, TimeUnixNs: stamp(n),
	}
	if n.Kind == meta.NewsNoProvider {
		e.Type = eventProviderDown
	} else if n.Keeper {
		t.hold(n.Set, n.Node.Node)
	}
	return t.add(e)
}

// name adds the events of a name that changed.
func (t *teller) name(ctx context.Context, n meta.News) error {
	dir, hidden, err := t.paths.of(ctx, n.Dir)
	if err != nil {
		return err
	}
	if hidden {
		if n.Kind == meta.NewsGone {
			t.paths.keep(n.Dir, *n.Before, false)
		} else {
			t.paths.keep(n.Dir, n.Entry, true)
		}
		return nil
	}
	if n.Kind == meta.NewsGone {
		return t.gone(ctx, dir, n)
	}
	e := t.entry(ctx, eventPublish, dir, n.Entry, n)
	switch {
	case n.Kind == meta.NewsMoved:
		e.Type = eventRename
		from, _, err := t.paths.of(ctx, n.From.Dir)
		if err != nil {
			return err
		}
		e.FromPath = []byte(path.Join(from, n.From.Name))
	case n.Entry.Kind == meta.KindDir:
		e.Type = eventMkdir
	case n.Before != nil:
		e.Type = eventReplace
	}
	if n.Before != nil && !n.Before.Object.ID.IsZero() && n.Before.Object.ID != n.Entry.Object.ID {
		e.Replaced = n.Before.Object.ID.String()
	}
	if err := t.add(e); err != nil || n.Entry.Kind != meta.KindDir {
		return err
	}
	at := meta.Place{Dir: n.Dir, Name: n.Entry.Name}
	if n.Kind == meta.NewsMoved {
		t.paths.moved(n.Entry.Inode, at)
		return nil
	}
	return t.tree(ctx, string(e.Path), n.Entry.Inode, at, n)
}

// gone adds the event of a name that was removed.
func (t *teller) gone(ctx context.Context, dir string, n meta.News) error {
	e := t.entry(ctx, eventUnpublish, dir, *n.Before, n)
	if n.Before.Kind == meta.KindDir {
		e.Type = eventRmdir
		t.paths.forget(n.Before.Inode)
	}
	return t.add(e)
}

// tree takes note of a directory's name, and adds the events of what it held
// before it had one: all of that appears with the name of top.
func (t *teller) tree(ctx context.Context, at string, dir meta.InodeID, place meta.Place, top meta.News) error {
	kept, lost := t.paths.named(dir, place)
	if lost {
		return t.listed(ctx, at, dir, top)
	}
	return t.appear(ctx, at, dir, kept, top)
}

// listed is tree for a directory that is not known to have held nothing more
// than what is remembered. What was changed after it got its name is told by
// itself.
func (t *teller) listed(ctx context.Context, at string, dir meta.InodeID, top meta.News) error {
	_, err := t.catalog.List(ctx, dir, func(entries []meta.Entry) error {
		entries = slices.DeleteFunc(entries, func(e meta.Entry) bool { return e.Version > top.Version })
		return t.appear(ctx, at, dir, entries, top)
	})
	if errors.Is(err, meta.ErrNotFound) {
		return t.add(&nodepb.Event{Type: eventGap, Note: fmt.Sprintf("what %q held at first is not known: it was removed since", "/"+at)})
	}
	if err != nil {
		return fmt.Errorf("list %q: %w", "/"+at, err)
	}
	return nil
}

// appear adds the events of entries of a directory, and of what lies below them.
func (t *teller) appear(ctx context.Context, at string, dir meta.InodeID, entries []meta.Entry, top meta.News) error {
	for _, e := range entries {
		ev := t.entry(ctx, eventPublish, at, e, top)
		if e.Kind != meta.KindDir {
			if err := t.add(ev); err != nil {
				return err
			}
			continue
		}
		ev.Type = eventMkdir
		if err := t.add(ev); err != nil {
			return err
		}
		if err := t.tree(ctx, path.Join(at, e.Name), e.Inode, meta.Place{Dir: dir, Name: e.Name}, top); err != nil {
			return err
		}
	}
	return nil
}

// entry returns the event of one name.
func (t *teller) entry(ctx context.Context, kind, dir string, e meta.Entry, n meta.News) *nodepb.Event {
	ev := &nodepb.Event{
		Type: kind, Path: []byte(path.Join(dir, e.Name)), Kind: e.Kind.String(), Size: e.Size, TimeUnixNs: stamp(n),
	}
	if e.Object.ID.IsZero() {
		return ev
	}
	ev.Object, ev.Set = e.Object.ID.String(), e.Object.Set.String()
	if kind != eventUnpublish {
		if id := t.holder(ctx, e.Object.Set); !id.IsZero() {
			ev.Node, ev.NodeName = id.String(), t.nameOf(ctx, id)
		}
	}
	return ev
}

// holder returns a node that keeps a set: who published it, most times. Zero:
// not known.
func (t *teller) holder(ctx context.Context, set chunk.SetID) chunk.NodeID {
	id, ok := t.holders[set]
	if ok {
		return id
	}
	providers, err := t.catalog.Providers(ctx, set)
	if err != nil {
		return chunk.NodeID{}
	}
	for _, p := range providers {
		if p.Keeper && (id.IsZero() || p.Alive) {
			id = p.Node
		}
	}
	t.hold(set, id)
	return id
}

func (t *teller) hold(set chunk.SetID, id chunk.NodeID) {
	if len(t.holders) >= knownSets {
		clear(t.holders)
	}
	t.holders[set] = id
}

// nameOf returns a node's name for people; "" if it is not known.
func (t *teller) nameOf(ctx context.Context, id chunk.NodeID) string {
	name, ok := t.names[id]
	if !ok {
		if info, err := t.catalog.Node(ctx, id); err == nil {
			name = info.Name
		}
		t.names[id] = name
	}
	return name
}
