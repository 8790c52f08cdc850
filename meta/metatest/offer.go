package metatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// RunOffer tries how names come back into a store that lost them. open is as
// in Run.
func RunOffer(t *testing.T, open func(t *testing.T) meta.Slots) {
	for name, fn := range map[string]func(*testing.T, func(*testing.T) meta.Slots){
		"Restore":    testRestore,
		"Epochs":     testEpochs,
		"Offer":      testOffer,
		"OfferDir":   testOfferDir,
		"Tombstones": testTombstones,
		"Hold":       testHold,
		"RolledBack": testRolledBack,
		"Wiped":      testWiped,
		"WipedTwice": testWipedTwice,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, func(t *testing.T) meta.Slots {
				s := open(t)
				t.Cleanup(func() { _ = s.Close() })
				return s
			})
		})
	}
}

// joined returns a catalog of a new cluster.
func joined(t *testing.T, s meta.Slots, r meta.Recorder) (*meta.Catalog, meta.StoreInfo) {
	t.Helper()
	c := meta.NewCatalog(s, meta.Options{Recorder: r})
	return c, Join(t, c)
}

// moved returns a catalog that knows a store as known and finds another.
func moved(s meta.Slots, known meta.StoreInfo, r meta.Recorder) *meta.Catalog {
	c := meta.NewCatalog(s, meta.Options{Recorder: r})
	c.UseStore(known)
	return c
}

func testRestore(t *testing.T, open func(*testing.T) meta.Slots) {
	_, known := joined(t, open(t), nil)
	s := open(t)
	c := moved(s, known, nil)
	require.ErrorIs(t, c.CheckStore(t.Context()), meta.ErrOtherStore)
	select {
	case <-c.Lost():
	default:
		t.Fatal("an empty store must be told")
	}
	require.False(t, c.Live())

	infos := make([]meta.StoreInfo, 8)
	var wg sync.WaitGroup
	for i := range infos {
		wg.Go(func() {
			var err error
			if infos[i], err = moved(s, known, nil).Restore(t.Context(), known); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, info := range infos {
		require.Equal(t, infos[0], info, "one epoch")
	}
	now := infos[0]
	require.Equal(t, known.Cluster, now.Cluster)
	require.Equal(t, known.Secret, now.Secret)
	require.Equal(t, known.ChunkSize, now.ChunkSize)
	require.NotEqual(t, known.Epoch, now.Epoch)
	require.Equal(t, []meta.Epoch{known.Epoch}, now.Epochs)
	require.ErrorIs(t, c.CheckStore(t.Context()), meta.ErrOtherStore, "not adopted yet")
	c.UseStore(now)
	require.NoError(t, c.CheckStore(t.Context()))
	require.True(t, c.Live())
	_, err := c.Dir(t.Context(), meta.RootDir)
	require.NoError(t, err)
	joined, err := meta.NewCatalog(s, meta.Options{}).Join(t.Context(), meta.JoinOptions{})
	require.NoError(t, err)
	require.Equal(t, now, joined)

	_, other := JoinNew(t, open(t))
	_, err = c.Restore(t.Context(), other)
	require.ErrorIs(t, err, meta.ErrOtherStore)
}

// JoinNew makes a cluster in a store.
func JoinNew(t *testing.T, s meta.Slots) (*meta.Catalog, meta.StoreInfo) { return joined(t, s, nil) }

// Epochs: what one node alone knows of the store's past is added; a store of an
// earlier epoch, or one that is behind, goes on in a new one.
func testEpochs(t *testing.T, open func(*testing.T) meta.Slots) {
	first := open(t)
	_, zero := joined(t, first, nil)
	second := open(t)
	one, err := moved(second, zero, nil).Restore(t.Context(), zero)
	require.NoError(t, err)
	// Another node missed epoch one and makes a third store.
	third := open(t)
	two, err := moved(third, zero, nil).Restore(t.Context(), zero)
	require.NoError(t, err)
	merged, err := moved(third, one, nil).Restore(t.Context(), one)
	require.NoError(t, err)
	require.Equal(t, two.Epoch, merged.Epoch)
	require.Equal(t, []meta.Epoch{zero.Epoch, one.Epoch}, merged.Epochs)
	again, err := moved(third, one, nil).Restore(t.Context(), one)
	require.NoError(t, err)
	require.Equal(t, merged, again)
	// The first store comes back as it was.
	back, err := moved(first, merged, nil).Restore(t.Context(), merged)
	require.NoError(t, err)
	require.Equal(t, []meta.Epoch{zero.Epoch, one.Epoch, two.Epoch}, back.Epochs)
	require.NotContains(t, back.Epochs, back.Epoch)
	same, err := moved(first, back, nil).Restore(t.Context(), back)
	require.NoError(t, err)
	require.Equal(t, back, same)
	anew, err := moved(first, back, nil).NewEpoch(t.Context(), back)
	require.NoError(t, err)
	require.Equal(t, append(slices.Clone(back.Epochs), back.Epoch), anew.Epochs)
	// Who comes second takes it.
	same, err = moved(first, back, nil).NewEpoch(t.Context(), back)
	require.NoError(t, err)
	require.Equal(t, anew, same)
}

func testOffer(t *testing.T, open func(*testing.T) meta.Slots) {
	_, known := joined(t, open(t), nil)
	s := open(t)
	c := moved(s, known, nil)
	info, err := c.Restore(t.Context(), known)
	require.NoError(t, err)
	c.UseStore(info)
	at := func(v uint64) meta.Origin { return meta.Origin{Epoch: known.Epoch, Version: v} }
	native := File("native", 1)
	_, err = c.Link(t.Context(), meta.RootDir, native)
	require.NoError(t, err)
	e := File("f", 5)
	e2 := File("f", 6)
	for _, step := range []struct {
		what  string
		offer meta.Offer
		fate  meta.Fate
		want  *meta.Entry
	}{
		{"fills in", meta.Offer{Name: "f", Entry: e, Origin: at(10)}, meta.FateTaken, &e},
		{"is there", meta.Offer{Name: "f", Entry: e, Origin: at(10)}, meta.FateKnown, &e},
		{"older", meta.Offer{Name: "f", Entry: e2, Origin: at(9)}, meta.FateOlder, &e},
		{"later", meta.Offer{Name: "f", Entry: e2, Origin: at(11)}, meta.FateTaken, &e2},
		{"of an epoch nobody knows", meta.Offer{Name: "f", Entry: e, Origin: meta.Origin{Version: 99}}, meta.FateOlder, &e2},
		{"older tombstone", meta.Offer{Name: "f", Gone: true, Origin: at(10)}, meta.FateVoid, &e2},
		{"equal tombstone", meta.Offer{Name: "f", Gone: true, Origin: at(11)}, meta.FateTaken, nil},
		{"that tombstone again", meta.Offer{Name: "f", Gone: true, Origin: at(11)}, meta.FateKnown, nil},
		{"before it", meta.Offer{Name: "f", Entry: e2, Origin: at(11)}, meta.FateGone, nil},
		{"after it", meta.Offer{Name: "f", Entry: e, Origin: at(12)}, meta.FateTaken, &e},
		{"later tombstone", meta.Offer{Name: "f", Gone: true, Origin: at(20)}, meta.FateTaken, nil},
		{"older tombstone yet", meta.Offer{Name: "f", Gone: true, Origin: at(15)}, meta.FateKnown, nil},
		{"between", meta.Offer{Name: "f", Entry: e, Origin: at(16)}, meta.FateGone, nil},
	} {
		fates, err := c.Offer(t.Context(), meta.RootDir, []meta.Offer{step.offer})
		require.NoError(t, err, step.what)
		require.Equal(t, step.fate, fates[0], step.what)
		got, err := c.Lookup(t.Context(), meta.RootDir, "f")
		if step.want == nil {
			require.ErrorIs(t, err, meta.ErrNotFound, step.what)
			continue
		}
		require.NoError(t, err, step.what)
		require.Equal(t, step.want.Object, got.Object, step.what)
	}
	// What was made in the new epoch stays, whatever is offered.
	for _, o := range []meta.Offer{
		{Name: "native", Entry: File("native", 2), Origin: at(1 << 60)},
		{Name: "native", Gone: true, Origin: at(1 << 60)},
	} {
		_, err := c.Offer(t.Context(), meta.RootDir, []meta.Offer{o})
		require.NoError(t, err)
		got, err := c.Lookup(t.Context(), meta.RootDir, "native")
		require.NoError(t, err)
		require.Equal(t, native.Object, got.Object)
	}
	_, err = c.Offer(t.Context(), meta.NewInodeID(), []meta.Offer{{Name: "f", Entry: e, Origin: at(1)}})
	require.ErrorIs(t, err, meta.ErrNotFound)
	// Many at once, some with all that an entry can hold.
	full, err := meta.XAttrs("").Apply(meta.XAttrChange{Name: "user.a", Value: strings.Repeat("v", meta.XAttrsMax-9)})
	require.NoError(t, err)
	var many []meta.Offer
	for i := range 500 {
		n := fmt.Sprintf("many%03d", i)
		e := File(n, 1)
		if i < 100 {
			e.XAttrs = full
		}
		many = append(many, meta.Offer{Name: n, Entry: e, Origin: at(uint64(i + 1))})
	}
	_, err = c.Offer(t.Context(), meta.RootDir, many)
	require.NoError(t, err)
	there := list(t, c, meta.RootDir)
	require.Len(t, there, 501)
	require.Equal(t, full, there["many099"].XAttrs)
	// A change of an offered name is of the new epoch.
	n := list(t, c, meta.RootDir)["many007"]
	n.Mode = 0o600
	_, err = c.Replace(t.Context(), meta.RootDir, n, n.Version)
	require.NoError(t, err)
	fates, err := c.Offer(t.Context(), meta.RootDir, []meta.Offer{{Name: "many007", Entry: e, Origin: at(1 << 60)}})
	require.NoError(t, err)
	require.Equal(t, meta.FateOlder, fates[0])
}

func testOfferDir(t *testing.T, open func(*testing.T) meta.Slots) {
	_, known := joined(t, open(t), nil)
	s := open(t)
	c := moved(s, known, nil)
	info, err := c.Restore(t.Context(), known)
	require.NoError(t, err)
	c.UseStore(info)
	at := func(v uint64) meta.Origin { return meta.Origin{Epoch: known.Epoch, Version: v} }
	dir := func(name string) meta.Entry {
		return meta.Entry{Name: name, Kind: meta.KindDir, Inode: meta.NewInodeID(), Mode: 0o750}
	}
	offer := func(e meta.Entry, o meta.Origin) (meta.InodeID, meta.Fate) {
		id, fate, err := c.OfferDir(t.Context(), meta.RootDir, meta.Offer{Name: e.Name, Entry: e, Origin: o}, meta.DirInfo{Mode: 0o750})
		require.NoError(t, err)
		return id, fate
	}
	d := dir("d")
	for _, want := range []meta.Fate{meta.FateTaken, meta.FateKnown} {
		id, fate := offer(d, at(5))
		require.Equal(t, want, fate)
		require.Equal(t, d.Inode, id)
	}
	_, err = c.Link(t.Context(), d.Inode, File("in", 1))
	require.NoError(t, err)
	self, err := c.Dir(t.Context(), d.Inode)
	require.NoError(t, err)
	require.Equal(t, meta.RootDir, self.Parent)

	// One that somebody made in the new epoch takes what was in the old one.
	made, err := c.Mkdir(t.Context(), meta.RootDir, "m", meta.Attrs{Mode: 0o700})
	require.NoError(t, err)
	id, fate := offer(dir("m"), at(9))
	require.Equal(t, made.Inode, id)
	require.Equal(t, meta.FateKnown, fate)
	// Removed in the new epoch: with all that was in it.
	_, err = c.Rmdir(t.Context(), meta.RootDir, "m")
	require.NoError(t, err)
	_, fate = offer(dir("m"), at(9))
	require.Equal(t, meta.FateGone, fate)
	_, err = c.Mkdir(t.Context(), meta.RootDir, "m", meta.Attrs{Mode: 0o700})
	require.NoError(t, err)
	_, fate = offer(dir("m"), at(9))
	require.Equal(t, meta.FateGone, fate, "the tombstone outlives the new name")

	// A directory that was renamed here is found under its new name.
	_, err = c.Rename(t.Context(), meta.Place{Dir: meta.RootDir, Name: "d"}, meta.Place{Dir: meta.RootDir, Name: "e"}, meta.RenameOptions{})
	require.NoError(t, err)
	id, fate = offer(d, at(5))
	require.Equal(t, meta.FateKnown, fate)
	require.Equal(t, d.Inode, id)
	require.Contains(t, list(t, c, meta.RootDir), "e")
	require.NotContains(t, list(t, c, meta.RootDir), "d")

	// One that another has put in its place in the same epoch, later, was made
	// after it had been removed.
	old, later := dir("x"), dir("x")
	_, _ = offer(old, at(3))
	id, fate = offer(later, at(8))
	require.Equal(t, meta.FateTaken, fate)
	require.Equal(t, later.Inode, id)
	require.Equal(t, later.Inode, list(t, c, meta.RootDir)["x"].Inode)
	_, err = c.DirVersion(t.Context(), old.Inode)
	require.NoError(t, err)
}

// Tombstones are written where there are earlier epochs, and hide nothing.
func testTombstones(t *testing.T, open func(*testing.T) meta.Slots) {
	for _, history := range []bool{false, true} {
		s := open(t)
		c, known := joined(t, s, nil)
		if history {
			info, err := c.NewEpoch(t.Context(), known)
			require.NoError(t, err)
			c.UseStore(info)
		}
		d, err := c.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		var names []meta.Entry
		for i := range 230 {
			names = append(names, File(fmt.Sprintf("%03d", i), 1))
		}
		require.NoError(t, c.LinkMany(t.Context(), d.Inode, names))
		_, _, err = c.Unlink(t.Context(), d.Inode, "007", 0)
		require.NoError(t, err)
		_, err = c.Rename(t.Context(), meta.Place{Dir: d.Inode, Name: "008"}, meta.Place{Dir: d.Inode, Name: "new"}, meta.RenameOptions{})
		require.NoError(t, err)
		_, err = c.Rename(t.Context(), meta.Place{Dir: d.Inode, Name: "009"}, meta.Place{Dir: meta.RootDir, Name: "up"}, meta.RenameOptions{})
		require.NoError(t, err)
		require.Len(t, list(t, c, d.Inode), 228)
		gone := func() (n int) {
			next := ""
			for first := true; first || next != ""; first = false {
				p, err := s.List(t.Context(), meta.Slot(fmt.Sprintf("d/%016x", uint64(d.Inode))), next, 100)
				require.NoError(t, err)
				for _, r := range p.Records {
					if len(r.Field) > 6 && r.Field[:6] == "/gone/" {
						n++
					}
				}
				next = p.Next
			}
			return n
		}
		want := 0
		if history {
			want = 3
		}
		require.Equal(t, want, gone())
		require.NoError(t, c.CleanGone(t.Context(), d.Inode, time.Now().Add(-time.Hour)))
		require.Equal(t, want, gone())
		_, err = c.RemoveTree(t.Context(), meta.RootDir, "d", nil, nil)
		require.NoError(t, err)
		require.NoError(t, c.CleanGone(t.Context(), d.Inode, time.Now().Add(time.Hour)))
		require.Zero(t, gone())
		require.Len(t, list(t, c, meta.RootDir), 1)
	}
}

// While names are brought back, the store says nothing of what it lacks, and
// changes wait.
func testHold(t *testing.T, open func(*testing.T) meta.Slots) {
	c, _ := joined(t, open(t), nil)
	c.Hold()
	require.ErrorIs(t, c.CheckStore(t.Context()), meta.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Link(ctx, meta.RootDir, File("f", 1))
	require.ErrorIs(t, err, meta.ErrUnavailable)
	done := make(chan error)
	go func() {
		_, err := c.Link(t.Context(), meta.RootDir, File("g", 1))
		done <- err
	}()
	c.Release()
	require.NoError(t, <-done)
	require.NoError(t, c.CheckStore(t.Context()))
}

func testRolledBack(t *testing.T, open func(*testing.T) meta.Slots) {
	c, _ := joined(t, open(t), nil)
	e, err := c.Link(t.Context(), meta.RootDir, File("f", 1))
	require.NoError(t, err)
	for version, want := range map[uint64]bool{e.Version: false, e.Version - 1: false, e.Version + 1: true} {
		got, err := c.RolledBack(t.Context(), map[meta.InodeID]uint64{meta.RootDir: version})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// journal is what a node remembers, in memory: as node/journal, of which this is
// the shortest form.
type journal struct {
	mu    sync.Mutex
	names map[meta.Place]meta.Offer
	ways  map[meta.InodeID]way
}

type way struct {
	parent meta.InodeID
	offer  meta.Offer
}

func newJournal() *journal {
	return &journal{names: map[meta.Place]meta.Offer{}, ways: map[meta.InodeID]way{}}
}

func later(a, b meta.Origin) bool { return a.Epoch == b.Epoch && a.Version < b.Version }

// Changed implements meta.Recorder.
func (j *journal) Changed(dir meta.InodeID, at meta.Origin, sets []meta.Set) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range sets {
		switch {
		case s.Field == meta.SelfField && s.Value == nil:
			delete(j.ways, dir)
			for p := range j.names {
				if p.Dir == dir {
					delete(j.names, p)
				}
			}
			continue
		case meta.CheckName(s.Field) != nil:
			continue
		}
		o := meta.Offer{Name: s.Field, Gone: s.Value == nil, Origin: at}
		if !o.Gone {
			o.Entry, _ = meta.UnmarshalEntry(s.Field, s.Value, at.Version, chunk.DefaultChunkSize)
		}
		p := meta.Place{Dir: dir, Name: s.Field}
		if was, ok := j.names[p]; ok && later(at, was.Origin) {
			continue
		}
		j.names[p] = o
		if !o.Gone && o.Entry.Kind == meta.KindDir {
			j.ways[o.Entry.Inode] = way{dir, o}
		}
	}
}

// offer brings all of it into a store, in random order, by many goroutines.
func (j *journal) offer(ctx context.Context, c *meta.Catalog, rnd *rand.Rand) error {
	for {
		again := false
		placed := map[meta.InodeID]meta.InodeID{meta.RootDir: meta.RootDir}
		var place func(id meta.InodeID) (meta.InodeID, error)
		place = func(id meta.InodeID) (meta.InodeID, error) {
			if to, ok := placed[id]; ok {
				return to, nil
			}
			w, ok := j.ways[id]
			if !ok {
				return 0, nil
			}
			parent, err := place(w.parent)
			if err != nil || parent == 0 {
				return 0, err
			}
			to, _, err := c.OfferDir(ctx, parent, w.offer, meta.DirInfo{Mode: w.offer.Entry.Mode})
			if errors.Is(err, meta.ErrNotFound) {
				again = true
				return 0, nil
			}
			placed[id] = to
			return to, err
		}
		by := map[meta.InodeID][]meta.Offer{}
		for p, o := range j.names {
			by[p.Dir] = append(by[p.Dir], o)
		}
		dirs := make([]meta.InodeID, 0, len(by))
		for d := range by {
			dirs = append(dirs, d)
		}
		slices.Sort(dirs)
		rnd.Shuffle(len(dirs), func(a, b int) { dirs[a], dirs[b] = dirs[b], dirs[a] })
		for _, d := range dirs {
			to, err := place(d)
			if err != nil {
				return err
			}
			if to == 0 {
				continue
			}
			offers := by[d][:0]
			for _, o := range by[d] {
				if o.Gone || o.Entry.Kind != meta.KindDir {
					offers = append(offers, o)
				} else if _, err := place(o.Entry.Inode); err != nil {
					return err
				}
			}
			rnd.Shuffle(len(offers), func(a, b int) { offers[a], offers[b] = offers[b], offers[a] })
			_, err = c.Offer(ctx, to, offers)
			if errors.Is(err, meta.ErrNotFound) {
				again = true
			} else if err != nil {
				return err
			}
		}
		if !again {
			return nil
		}
	}
}
