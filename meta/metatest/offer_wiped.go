package metatest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// life is a cluster of some nodes that change names, and whose store is lost.
type life struct {
	t        *testing.T
	rnd      *rand.Rand
	info     meta.StoreInfo
	journals []*journal
	nodes    []*meta.Catalog
}

func newLife(t *testing.T, s meta.Slots, nodes int) *life {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l := &life{t: t, rnd: rand.New(rand.NewPCG(seed, 0))}
	_, l.info = joined(t, s, nil)
	for range nodes {
		j := newJournal()
		l.journals = append(l.journals, j)
		l.nodes = append(l.nodes, moved(s, l.info, j))
	}
	return l
}

// spot is a name in a tree, with its directory.
type spot struct {
	path string
	at   meta.Place
	e    meta.Entry
}

// tree lists all names below the root.
func (l *life) tree(c *meta.Catalog) []spot {
	var out []spot
	var walk func(prefix string, dir meta.InodeID)
	walk = func(prefix string, dir meta.InodeID) {
		names := list(l.t, c, dir)
		for _, n := range slices.Sorted(maps.Keys(names)) {
			e := names[n]
			out = append(out, spot{prefix + n, meta.Place{Dir: dir, Name: n}, e})
			if e.Kind == meta.KindDir {
				walk(prefix+n+"/", e.Inode)
			}
		}
	}
	walk("", meta.RootDir)
	return out
}

// shape is what must be the same: paths, kinds, contents and attributes.
func shape(spots []spot) []string {
	out := make([]string, len(spots))
	for i, s := range spots {
		out[i] = fmt.Sprintf("%s %v %o %q %s %q", s.path, s.e.Kind, s.e.Mode, s.e.XAttrs, s.e.Object.ID.Short(), s.e.Target)
	}
	return out
}

// step makes one random change on a node.
func (l *life) step(c *meta.Catalog) {
	ctx := l.t.Context()
	spots := l.tree(c)
	dirs := []meta.InodeID{meta.RootDir}
	for _, s := range spots {
		if s.e.Kind == meta.KindDir {
			dirs = append(dirs, s.e.Inode)
		}
	}
	dir := dirs[l.rnd.IntN(len(dirs))]
	name := string(rune('a' + l.rnd.IntN(6)))
	var err error
	switch op := l.rnd.IntN(10); {
	case op < 4:
		_, err = c.Link(ctx, dir, File(name, 1+l.rnd.Int64N(100)))
	case op < 6:
		_, err = c.Mkdir(ctx, dir, name, meta.Attrs{Mode: 0o700 + uint32(l.rnd.IntN(8))})
	case len(spots) == 0:
		return
	default:
		s := spots[l.rnd.IntN(len(spots))]
		switch {
		case op == 6:
			_, err = c.Rename(ctx, s.at, meta.Place{Dir: dir, Name: name}, meta.RenameOptions{})
		case op == 7:
			mode := 0o600 + uint32(l.rnd.IntN(64))
			_, err = c.SetAttr(ctx, s.at.Dir, s.at.Name, s.e.Inode, meta.AttrChange{Mode: &mode, XAttr: &meta.XAttrChange{Name: "user." + name, Value: fmt.Sprint(mode)}})
		case s.e.Kind == meta.KindDir:
			_, err = c.Rmdir(ctx, s.at.Dir, s.at.Name)
		default:
			_, _, err = c.Unlink(ctx, s.at.Dir, s.at.Name, 0)
		}
	}
	for _, ok := range []error{meta.ErrExist, meta.ErrNotEmpty, meta.ErrIsDir, meta.ErrNotDir, meta.ErrLoop, meta.ErrNotFound} {
		if errors.Is(err, ok) {
			return
		}
	}
	require.NoError(l.t, err)
}

// learnWays tells the nodes the way to every directory, as node/journal's
// owner finds it out.
func (l *life) learnWays(nodes []int) {
	spots := l.tree(l.nodes[nodes[0]])
	for _, n := range nodes {
		j := l.journals[n]
		for _, s := range spots {
			if s.e.Kind != meta.KindDir {
				continue
			}
			if own, ok := j.names[s.at]; ok && own.Entry.Inode == s.e.Inode {
				continue
			}
			j.ways[s.e.Inode] = way{s.at.Dir, meta.Offer{Name: s.e.Name, Entry: s.e, Origin: meta.Origin{Epoch: l.info.Epoch, Version: s.e.Version}}}
		}
	}
}

// wipe moves the cluster to an empty store: the nodes make it theirs, and all
// of them offer what they know at the same time, each in an order of its own.
func (l *life) wipe(s meta.Slots, known meta.StoreInfo, up []int) meta.StoreInfo {
	t := l.t
	var wg sync.WaitGroup
	infos := make([]meta.StoreInfo, len(up))
	for i, n := range up {
		seed := l.rnd.Uint64()
		wg.Go(func() {
			c := moved(s, known, l.journals[n])
			info, err := c.Restore(t.Context(), known)
			if err != nil {
				t.Error(err)
				return
			}
			infos[i] = info
			c.UseStore(info)
			for range 2 { // again is harmless
				if err := l.journals[n].offer(t.Context(), c, rand.New(rand.NewPCG(seed, 1))); err != nil {
					t.Error(err)
				}
			}
			l.nodes[n] = c
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
	return infos[0]
}

// Whoever comes first: the names are those of before.
func testWiped(t *testing.T, open func(*testing.T) meta.Slots) {
	l := newLife(t, open(t), 4)
	all := []int{0, 1, 2, 3}
	for range 3 {
		for range 60 {
			l.step(l.nodes[l.rnd.IntN(len(l.nodes))])
		}
		l.learnWays(all)
		want := shape(l.tree(l.nodes[0]))
		l.info = l.wipe(open(t), l.info, all)
		spots := l.tree(l.nodes[1])
		require.Equal(t, want, shape(spots))
		for _, s := range spots {
			if s.e.Kind != meta.KindDir {
				continue
			}
			d, err := l.nodes[1].Dir(t.Context(), s.e.Inode)
			require.NoError(t, err)
			require.Equal(t, s.at.Dir, d.Parent, s.path)
		}
	}
}

// A node that was away comes back with what was not removed meanwhile, and
// nothing else.
func testWipedTwice(t *testing.T, open func(*testing.T) meta.Slots) {
	l := newLife(t, open(t), 3)
	for range 60 {
		l.step(l.nodes[l.rnd.IntN(3)])
	}
	l.learnWays([]int{0, 1, 2})
	before := map[string]spot{}
	for _, s := range l.tree(l.nodes[0]) {
		before[s.at.Name+fmt.Sprint(s.at.Dir)] = s
	}
	// Node 2 is away: the store is lost, and the others go on.
	known := l.info
	s := open(t)
	l.info = l.wipe(s, known, []int{0, 1})
	there := l.tree(l.nodes[0])
	removed := map[meta.Place]bool{}
	for _, s := range there {
		if s.e.Kind != meta.KindDir && l.rnd.IntN(3) == 0 {
			_, _, err := l.nodes[l.rnd.IntN(2)].Unlink(t.Context(), s.at.Dir, s.at.Name, 0)
			require.NoError(t, err)
			removed[s.at] = true
		}
	}
	kept := shape(l.tree(l.nodes[0]))
	// It comes back, with a journal of the first epoch.
	c := moved(s, known, l.journals[2])
	info, err := c.Restore(t.Context(), known)
	require.NoError(t, err)
	require.Equal(t, l.info.Epoch, info.Epoch)
	c.UseStore(info)
	require.NoError(t, l.journals[2].offer(t.Context(), c, l.rnd))
	l.nodes[2] = c
	now := l.tree(c)
	paths := map[string]bool{}
	for _, s := range now {
		paths[fmt.Sprint(shape([]spot{s}))] = true
		require.False(t, removed[s.at], "%s was removed", s.path)
	}
	for _, k := range kept {
		if !paths[fmt.Sprint([]string{k})] {
			// Unless node 2 had removed or changed it before it went.
			t.Logf("node 2 took %s away", k)
		}
	}
	// All that node 2 wrote and nobody removed is there again.
	j := l.journals[2]
	for at, o := range j.names {
		s, ok := before[at.Name+fmt.Sprint(at.Dir)]
		if !ok || o.Gone || removed[at] || s.e.Object.ID != o.Entry.Object.ID || s.e.Kind == meta.KindDir {
			continue
		}
		e, err := c.Lookup(t.Context(), at.Dir, at.Name)
		require.NoError(t, err, "%s was written by node 2", s.path)
		require.Equal(t, o.Entry.Object.ID, e.Object.ID)
	}
}
