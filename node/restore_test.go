package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/node/journal"
)

// changing is a store that fails after some changes, as for a node that is
// killed.
type changing struct {
	meta.Slots
	left *atomic.Int64 // changes until it fails; nil: never
}

var errKilled = errors.New("killed here")

func (c changing) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	if c.left != nil && c.left.Add(-1) < 0 {
		return 0, errKilled
	}
	return c.Slots.Apply(ctx, slot, conds, sets)
}

// nothingHeld is a cache that is empty.
type nothingHeld struct{}

func (nothingHeld) Stat(chunk.ObjectID) (cache.Info, bool) { return cache.Info{}, false }
func (nothingHeld) Peek(chunk.ObjectID) (cache.Info, chunk.Held, bool) {
	return cache.Info{}, nil, false
}
func (nothingHeld) Objects(context.Context, func(cache.Info) bool) error { return nil }
func (nothingHeld) Zeros(context.Context, chunk.ObjectID) (chunk.Bitmap, bool) {
	return chunk.Bitmap{}, false
}

// member is one node as far as restoring goes.
type member struct {
	t   *testing.T
	dir string
	id  chunk.NodeID
	j   *journal.Journal
	c   *meta.Catalog
	r   *restorer
}

func newMember(t *testing.T, dir string) *member {
	m := &member{t: t, dir: dir, id: chunk.NewNodeID()}
	m.open()
	t.Cleanup(func() { _ = m.j.Close() })
	return m
}

// newMembers returns members of a new cluster, and what they know of its store.
func newMembers(t *testing.T, n int) ([]*member, meta.StoreInfo) {
	s := memory.New()
	info, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{Create: true})
	require.NoError(t, err)
	var all []*member
	for range n {
		m := newMember(t, t.TempDir())
		m.on(s.Another(), info)
		all = append(all, m)
	}
	return all, info
}

func (m *member) open() {
	var err error
	m.j, err = journal.Open(m.dir, nil)
	require.NoError(m.t, err)
}

// attempt tries once to bring back what the member knows.
func (m *member) attempt(ctx context.Context, settle time.Duration) error {
	o, err := m.r.attempt(ctx, "test", settle)
	if err == nil {
		m.r.waiting(o)
	}
	return err
}

// on makes the member's catalog one of a store that it knows as info.
func (m *member) on(s meta.Slots, info meta.StoreInfo) {
	m.c = meta.NewCatalog(s, meta.Options{Recorder: m.j})
	m.c.UseStore(info)
	m.r = &restorer{
		catalog: m.c, journal: m.j, cache: nothingHeld{}, self: m.id, log: slog.New(slog.DiscardHandler),
		timeout: time.Minute,
		save:    func(meta.StoreInfo) error { return nil },
		rejoin: func(ctx context.Context) error {
			_, err := m.c.JoinNode(ctx, meta.NodeInfo{Node: m.id, Name: "n", Host: "h", Addrs: map[string]string{"tcp": "127.0.0.1:1"}, ProtoMin: 1, ProtoMax: 1, Kind: "daemon"}, 0)
			return err
		},
		announce: func(context.Context) error { return nil },
		forget:   func() {}, hold: func(string) {}, release: func() {}, roll: func() []chunk.NodeID { return nil },
		listed: func(ctx context.Context, dir meta.InodeID) (all []meta.Entry, err error) {
			_, err = m.c.List(ctx, dir, func(page []meta.Entry) error {
				all = append(all, page...)
				return nil
			})
			return all, err
		},
		changes: make(chan meta.Place, changesMax),
		guard: keepGuard{
			place: func(cache.Info) meta.Place { return meta.Place{} },
			spare: func(chunk.ObjectID) bool { return false },
		},
	}
	require.NoError(m.t, m.r.begin())
}

// treeOf lists all names, by path.
func treeOf(t *testing.T, c *meta.Catalog) []string {
	t.Helper()
	var out []string
	var walk func(prefix string, dir meta.InodeID)
	walk = func(prefix string, dir meta.InodeID) {
		require.Less(t, strings.Count(prefix, "/"), 20, "%s: directories go in a circle", prefix)
		_, err := c.List(t.Context(), dir, func(page []meta.Entry) error {
			for _, e := range page {
				out = append(out, fmt.Sprintf("%s%s %v %s", prefix, e.Name, e.Kind, e.Object.ID.Short()))
				if e.Kind == meta.KindDir {
					walk(prefix+e.Name+"/", e.Inode)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	walk("", meta.RootDir)
	slices.Sort(out)
	return out
}

// TestRestore: some nodes work on names of their own and of each other; the
// store is lost; the first tries of all of them end half-way, at any change.
func TestRestore(t *testing.T) { // N6
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := memory.New()
	info, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{Create: true})
	require.NoError(t, err)
	var nodes []*member
	for range 3 {
		m := newMember(t, t.TempDir())
		m.on(s.Another(), info)
		nodes = append(nodes, m)
	}
	for round := range 3 {
		dirs, where := []meta.InodeID{meta.RootDir}, map[meta.InodeID]meta.Place{}
		for i := range 25 {
			m := nodes[rnd.IntN(3)]
			dir := dirs[rnd.IntN(len(dirs))]
			name := fmt.Sprintf("r%d-%d", round, i)
			if rnd.IntN(3) == 0 {
				e, err := m.c.Mkdir(t.Context(), dir, name, meta.Attrs{Mode: 0o755})
				require.NoError(t, err)
				dirs = append(dirs, e.Inode)
				where[e.Inode] = meta.Place{Dir: dir, Name: name}
				continue
			}
			if rnd.IntN(4) == 0 && len(dirs) > 1 { // moved, perhaps by another than made it
				id := dirs[1+rnd.IntN(len(dirs)-1)]
				to := meta.Place{Dir: dir, Name: name}
				_, err := m.c.Rename(t.Context(), where[id], to, meta.RenameOptions{})
				if errors.Is(err, meta.ErrLoop) {
					continue
				}
				require.NoError(t, err)
				where[id] = to
				continue
			}
			_, err := m.c.Link(t.Context(), dir, metatest.File(name, 5))
			require.NoError(t, err)
			if rnd.IntN(3) == 0 { // removed by another
				_, _, err = nodes[rnd.IntN(3)].c.Unlink(t.Context(), dir, name, 0)
				require.NoError(t, err)
			}
		}
		for _, m := range nodes { // what Run does in the background
			_, err := m.j.Dirs()
			require.NoError(t, err)
			for _, d := range m.j.TakeLacking() {
				if rnd.IntN(2) == 0 { // else the store is lost before that
					require.NoError(t, m.r.findWay(t.Context(), d))
				}
			}
			if rnd.IntN(2) == 0 {
				m.r.look(t.Context())
			}
		}
		want := treeOf(t, nodes[0].c)

		// The store is lost, and each node is killed at any change it makes.
		s = memory.New()
		known, ok := nodes[0].c.Joined()
		require.True(t, ok)
		for try := range 3 {
			for _, m := range nodes {
				left := new(atomic.Int64)
				left.Store(rnd.Int64N(12))
				if try == 2 {
					left = nil
				}
				was, _ := m.c.Joined()
				require.NoError(t, m.j.Close())
				m.open()
				m.on(changing{s.Another(), left}, was)
				err := m.r.enter(t.Context(), false)
				if err == nil {
					err = m.attempt(t.Context(), 0)
				}
				m.c.Release()
				if left == nil {
					require.NoError(t, err)
				} else if err != nil {
					require.ErrorIs(t, err, errKilled)
				}
			}
		}
		// Whoever was first waits for what the others brought back after it.
		for range 3 {
			for _, m := range nodes {
				require.NoError(t, m.r.offerLate(t.Context()))
			}
		}
		now, _ := nodes[0].c.Joined()
		require.Equal(t, append(slices.Clone(known.Epochs), known.Epoch), now.Epochs)
		for _, m := range nodes {
			require.Equal(t, want, treeOf(t, m.c))
			require.Equal(t, now.Epoch, m.j.Offered())
			require.NoError(t, m.c.CheckStore(t.Context()))
		}
	}
}

// A name in a directory that another node made, and whose way was not found
// before the store was lost, is brought back once that node has made the
// directory again.
func TestNamesWaitForTheDirectoriesOfOthers(t *testing.T) { // N6
	t.Parallel()
	all, info := newMembers(t, 2)
	a, b := all[0], all[1]
	_, err := b.c.Link(t.Context(), mkdir(a, meta.RootDir, "d"), metatest.File("f", 5))
	require.NoError(t, err)
	want := treeOf(t, a.c)

	s := memory.New()
	a.on(s.Another(), info)
	b.on(s.Another(), info)
	require.NoError(t, b.r.enter(t.Context(), false))
	done := make(chan error, 1)
	go func() { done <- b.attempt(t.Context(), 5*settleFor) }()
	require.Eventually(t, func() bool {
		n, err := b.c.Restoring(t.Context())
		return err == nil && n == 1
	}, 2*time.Minute, time.Millisecond)
	require.NoError(t, a.r.enter(t.Context(), false))
	require.NoError(t, a.attempt(t.Context(), 0))
	require.NoError(t, <-done)
	a.c.Release()
	b.c.Release()
	require.Equal(t, want, treeOf(t, a.c))
}

// Of a directory that moved into one of another node, its mover knows only that
// it went there: it is back under its new name once that node brought the other
// back, even one that was away until long after the names counted as restored.
func TestMovedDirectoriesWaitForTheirNewParent(t *testing.T) { // N6
	t.Parallel()
	for _, late := range []string{"away", "away and restarted"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			all, info := newMembers(t, 3)
			a, b, d := all[0], all[1], all[2]
			to, from := mkdir(a, meta.RootDir, "to"), mkdir(b, meta.RootDir, "from")
			_, err := d.c.Link(t.Context(), mkdir(b, from, "x"), metatest.File("in", 5))
			require.NoError(t, err)
			move(d, from, "x", to, "y")
			want := treeOf(t, a.c)

			s := memory.New()
			for _, m := range []*member{b, d} {
				m.on(s.Another(), info)
				require.NoError(t, m.r.enter(t.Context(), false))
				require.NoError(t, m.attempt(t.Context(), 0))
				m.c.Release()
			}
			require.NotEqual(t, want, treeOf(t, b.c))
			if late == "away and restarted" {
				now, _ := d.c.Joined()
				d.on(s.Another(), now)
				d.r.look(t.Context())
			}
			a.on(s.Another(), info)
			require.NoError(t, a.r.enter(t.Context(), false))
			require.NoError(t, a.attempt(t.Context(), 0))
			a.c.Release()
			require.NoError(t, d.r.offerLate(t.Context()))
			require.Equal(t, want, treeOf(t, a.c))
			require.Empty(t, d.r.waits)
		})
	}
}

// What a node knows of the way to a directory may be out of date, and lead through
// one that it removed: what it removed, and wrote, in there counts all the same
// once others have brought the directory back, below it as well.
func TestNamesWaitForDirectoriesThatWereMoved(t *testing.T) { // N6
	t.Parallel()
	all, info := newMembers(t, 3)
	a, c, d := all[0], all[1], all[2]
	from, to := mkdir(c, meta.RootDir, "from"), mkdir(d, meta.RootDir, "to")
	x := mkdir(c, from, "x")
	_, err := c.c.Link(t.Context(), x, metatest.File("removed", 5))
	require.NoError(t, err)
	_, _, err = a.c.Unlink(t.Context(), x, "removed", 0)
	require.NoError(t, err)
	below := mkdir(a, x, "below")
	_, err = a.c.Link(t.Context(), below, metatest.File("kept", 5))
	require.NoError(t, err)
	require.NoError(t, a.j.Flush())
	require.NoError(t, a.r.findWay(t.Context(), x))
	move(d, from, "x", to, "x")
	_, err = a.c.Rmdir(t.Context(), meta.RootDir, "from")
	require.NoError(t, err)
	want := treeOf(t, a.c)

	s := memory.New()
	for _, m := range []*member{a, d, c} {
		m.on(s.Another(), info)
		require.NoError(t, m.r.enter(t.Context(), false))
		require.NoError(t, m.attempt(t.Context(), 0))
		m.c.Release()
	}
	require.NoError(t, a.r.offerLate(t.Context()))
	require.Equal(t, want, treeOf(t, a.c))
}

// meanwhile is a store in which something happens before one of the reads.
type meanwhile struct {
	meta.Slots
	reads *atomic.Int64 // until then
	then  func()
}

func (m meanwhile) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	if m.reads.Add(-1) == 0 {
		m.then()
	}
	return m.Slots.Get(ctx, keys...)
}

// An empty directory is back in one that others moved, and so have to bring back,
// at whatever moment of this node's own restoration they do: a is this node, d the
// other.
func TestDirectoriesComeBackAtAnyMoment(t *testing.T) { // N6
	t.Parallel()
	for what, scene := range map[string]func(*testing.T, *member, *member){
		"one that moved": func(t *testing.T, a, d *member) {
			x, to := mkdir(a, meta.RootDir, "x"), mkdir(d, meta.RootDir, "to")
			move(d, meta.RootDir, "x", to, "y")
			mkdir(a, x, "empty")
			require.NoError(t, a.j.Flush())
			require.NoError(t, a.r.compareName(t.Context(), meta.Place{Dir: meta.RootDir, Name: "x"}))
		},
		// x goes to p, which a still knows below x.
		"one that is known below itself": func(t *testing.T, a, d *member) {
			q := mkdir(d, meta.RootDir, "q")
			x := mkdir(d, q, "x")
			y := mkdir(d, x, "y")
			p := mkdir(d, y, "p")
			mkdir(a, p, "empty")
			require.NoError(t, a.j.Flush())
			require.NoError(t, a.r.findWay(t.Context(), p))
			move(d, y, "p", meta.RootDir, "p")
			move(a, q, "x", p, "x")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for at := int64(1); comeBack(t, at, scene); at++ {
			}
		})
	}
}

// comeBack has a scene lost, and the other node bring back what it knows before a
// read of this one; false if that comes after the last.
func comeBack(t *testing.T, at int64, scene func(t *testing.T, a, d *member)) bool {
	all, info := newMembers(t, 2)
	a, d := all[0], all[1]
	scene(t, a, d)
	want := treeOf(t, a.c)

	s := memory.New()
	var left atomic.Int64
	left.Store(at)
	a.on(meanwhile{s.Another(), &left, func() {
		d.on(s.Another(), info)
		require.NoError(t, d.r.enter(t.Context(), false))
		require.NoError(t, newOffering(d.r).run(t.Context()))
	}}, info)
	require.NoError(t, a.r.enter(t.Context(), false))
	require.NoError(t, a.attempt(t.Context(), 0))
	if left.Load() > 0 { // that was after the end
		return false
	}
	a.c.Release()
	require.NoError(t, a.r.offerLate(t.Context()))
	require.Equal(t, want, treeOf(t, a.c), "the other one's names come back before read %d", at)
	return true
}

// mkdir makes a directory on a member, move moves one.
func mkdir(m *member, in meta.InodeID, name string) meta.InodeID {
	e, err := m.c.Mkdir(m.t.Context(), in, name, meta.Attrs{Mode: 0o755})
	require.NoError(m.t, err)
	return e.Inode
}

func move(m *member, from meta.InodeID, name string, to meta.InodeID, as string) {
	_, err := m.c.Rename(m.t.Context(), meta.Place{Dir: from, Name: name}, meta.Place{Dir: to, Name: as}, meta.RenameOptions{})
	require.NoError(m.t, err)
}

// A journal follows what others do to its names.
func TestTheJournalFollows(t *testing.T) { // N6
	t.Parallel()
	s := memory.New()
	info, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{Create: true})
	require.NoError(t, err)
	a, b := newMember(t, t.TempDir()), newMember(t, t.TempDir())
	a.on(s.Another(), info)
	b.on(s.Another(), info)
	d, err := a.c.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	for _, n := range []string{"removed", "changed", "moved", "stays"} {
		_, err := a.c.Link(t.Context(), d.Inode, metatest.File(n, 5))
		require.NoError(t, err)
	}
	sub, err := a.c.Mkdir(t.Context(), meta.RootDir, "sub", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	in, err := b.c.Link(t.Context(), sub.Inode, metatest.File("in", 5))
	require.NoError(t, err)
	require.NoError(t, a.j.Flush())
	_, _, err = b.c.Unlink(t.Context(), d.Inode, "removed", 0)
	require.NoError(t, err)
	mode := uint32(0o600)
	e, err := b.c.Lookup(t.Context(), d.Inode, "changed")
	require.NoError(t, err)
	e, err = b.c.SetAttr(t.Context(), d.Inode, "changed", e.Inode, meta.AttrChange{Mode: &mode})
	require.NoError(t, err)
	_, err = b.c.Rename(t.Context(), meta.Place{Dir: d.Inode, Name: "moved"}, meta.Place{Dir: sub.Inode, Name: "m"}, meta.RenameOptions{})
	require.NoError(t, err)
	_, err = b.c.Rename(t.Context(), meta.Place{Dir: meta.RootDir, Name: "sub"}, meta.Place{Dir: d.Inode, Name: "sub"}, meta.RenameOptions{})
	require.NoError(t, err)

	require.NoError(t, b.j.Flush())
	for _, id := range b.j.TakeLacking() {
		require.NoError(t, b.r.findWay(t.Context(), id))
	}
	require.NoError(t, b.j.Flush())
	require.True(t, b.j.HasWay(d.Inode))
	require.True(t, b.j.HasWay(sub.Inode))
	a.r.look(t.Context())
	require.NoError(t, a.j.Flush())
	for name, gone := range map[string]bool{"removed": true, "moved": true, "changed": false, "stays": false} {
		o, ok := a.j.Name(d.Inode, name)
		require.True(t, ok, name)
		require.Equal(t, gone, o.Gone, name)
	}
	o, _ := a.j.Name(d.Inode, "changed")
	require.Equal(t, mode, o.Entry.Mode)
	require.Equal(t, e.Version, o.Origin.Version)
	dirs, err := a.j.Dirs()
	require.NoError(t, err)
	i := slices.IndexFunc(dirs, func(d journal.Dir) bool { return d.ID == sub.Inode })
	require.Equal(t, d.Inode, dirs[i].Parent)

	// One name at a time, as the view tells of them.
	_, _, err = a.c.Unlink(t.Context(), sub.Inode, "in", in.Version)
	require.NoError(t, err)
	require.NoError(t, b.r.compareName(t.Context(), meta.Place{Dir: sub.Inode, Name: "in"}))
	require.NoError(t, b.j.Flush())
	o, ok := b.j.Name(sub.Inode, "in")
	require.True(t, ok)
	require.True(t, o.Gone)
}

// listedSlots calls a function after each listing of a slot.
type listedSlots struct {
	meta.Slots
	then *func()
}

func (l listedSlots) List(ctx context.Context, slot meta.Slot, after string, limit int) (meta.Page, error) {
	p, err := l.Slots.List(ctx, slot, after, limit)
	if *l.then != nil {
		(*l.then)()
	}
	return p, err
}

// What is written while the journal is compared with the store is no sign of a
// store that was restored from a copy.
func TestANodeThatWritesFindsNoStoreBehind(t *testing.T) { // N6
	t.Parallel()
	s := memory.New()
	info, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{Create: true})
	require.NoError(t, err)
	then := func() {}
	m := newMember(t, t.TempDir())
	m.on(listedSlots{s.Another(), &then}, info)
	d, err := m.c.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	_, err = m.c.Link(t.Context(), d.Inode, metatest.File("f", 5))
	require.NoError(t, err)
	n := 0
	then = func() {
		n++
		for _, dir := range []meta.InodeID{meta.RootDir, d.Inode} {
			_, err := m.c.Link(t.Context(), dir, metatest.File(fmt.Sprint("new", n), 5))
			require.NoError(t, err)
		}
		require.NoError(t, m.j.Flush())
	}
	m.r.look(t.Context())
	require.Positive(t, n, "nothing was written meanwhile")
	_, restored := m.r.report()
	require.False(t, restored, "a busy node took its store for a copy")
	now, found, err := m.c.StoreRecord(t.Context())
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, info.Epoch, now.Epoch)
}

// A journal that was out of touch for longer than tombstones are kept is not
// offered, unless the user says so.
func TestAnOldJournalIsNotOffered(t *testing.T) { // N6
	t.Parallel()
	s := memory.New()
	info, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{Create: true})
	require.NoError(t, err)
	m := newMember(t, t.TempDir())
	m.on(s, info)
	_, err = m.c.Link(t.Context(), meta.RootDir, metatest.File("f", 1))
	require.NoError(t, err)
	empty := memory.New()
	next, err := m.c.NewEpoch(t.Context(), info)
	require.NoError(t, err)
	for _, tt := range []struct {
		age     time.Duration
		allowed bool
		offered bool
	}{{time.Hour, false, true}, {6 * 24 * time.Hour, false, true}, {8 * 24 * time.Hour, false, false}, {8 * 24 * time.Hour, true, true}} {
		require.NoError(t, m.j.Touch(time.Now().Add(-tt.age)))
		m.on(empty, next)
		m.c.Release()
		m.r.allowed, m.r.stale = tt.allowed, false
		require.NoError(t, m.r.begin())
		require.Equal(t, tt.offered, m.c.Held(), "%+v", tt)
		require.Equal(t, !tt.offered, m.r.stale)
		m.c.Release()
	}
}
