package metatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// RunStorms runs the storms of RunCatalog again and again, each with a seed and
// a store of its own.
func RunStorms(t *testing.T, open func(t *testing.T) meta.Slots, times int) {
	for i := range times {
		for name, fn := range map[string]func(*testing.T, meta.Slots){
			"Rename": testRenameStorm, "DirMove": testDirMoveStorm, "Late": testLateMovers,
		} {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				t.Parallel()
				s := open(t)
				t.Cleanup(func() { _ = s.Close() })
				fn(t, s)
			})
		}
	}
}

// storm runs workers, each a node of its own, until they have made so many
// steps. All of them stall now and then, also for longer than a lease lasts;
// with kill, some are killed at a write.
func storm(t *testing.T, s meta.Slots, workers, steps int, kill bool, step func(rnd *rand.Rand, c *meta.Catalog) error) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	var mu sync.Mutex
	deaths := map[string]int{}
	var lapses atomic.Int64
	killed := func(at string) {
		mu.Lock()
		defer mu.Unlock()
		deaths[at]++
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			for range steps {
				lives := 1 << 30
				if kill && rnd.IntN(2) == 0 {
					lives = rnd.IntN(8)
				}
				st := NewStalled(s, rnd, 12)
				m := NewMortal(st, lives, rnd.IntN(2) == 0)
				err := step(rnd, meta.NewCatalog(m, meta.Options{}))
				lapses.Add(int64(st.Lapsed()))
				if at, dead := m.Dead(); dead {
					killed(at)
					err = errors.Join(err, m.Expire(t.Context()))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Log("killed at", deaths, "leases lapsed", lapses.Load())
}

// expected reports whether err is one that a change may end with while others
// change the same things, or the process is killed.
func expected(err error) bool {
	for _, e := range []error{meta.ErrNotFound, meta.ErrExist, meta.ErrLoop, meta.ErrNotEmpty, meta.ErrUnavailable, meta.ErrNotDir, meta.ErrIsDir} {
		if errors.Is(err, e) {
			return true
		}
	}
	return err == nil
}

// testRenameStorm: files that are moved about by many, some of whom are
// killed, each keep exactly one name.
func testRenameStorm(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	dirs := make([]meta.InodeID, 3)
	for i := range dirs {
		dirs[i] = mkdir(t, c, meta.RootDir, fmt.Sprint("d", i)).Inode
	}
	const files, names = 8, 5
	inodes := map[meta.InodeID]int{}
	for i := range files {
		inodes[link(t, c, dirs[i%3], File(fmt.Sprint(i), 1)).Inode] = 0
	}
	storm(t, s, 6, 15, true, func(rnd *rand.Rand, c *meta.Catalog) error {
		place := func() meta.Place {
			return meta.Place{Dir: dirs[rnd.IntN(len(dirs))], Name: fmt.Sprint(rnd.IntN(names))}
		}
		var err error
		switch rnd.IntN(5) {
		case 0:
			_, err = c.List(t.Context(), dirs[rnd.IntN(len(dirs))], func([]meta.Entry) error { return nil })
		case 1:
			p := place()
			_, err = c.Lookup(t.Context(), p.Dir, p.Name)
		default:
			_, err = c.Rename(t.Context(), place(), place(), meta.RenameOptions{NoReplace: true})
		}
		if !expected(err) {
			return err
		}
		return nil
	})
	for _, d := range dirs { // what is under way is finished by this listing
		list(t, c, d)
	}
	for _, d := range dirs {
		for name, e := range list(t, c, d) {
			inodes[e.Inode]++
			require.Equal(t, name, e.Name)
			yes, err := c.Referenced(t.Context(), e.Object.ID, meta.Reference{Dir: d, Name: name})
			require.NoError(t, err)
			require.True(t, yes)
		}
	}
	require.Len(t, inodes, files)
	for id, n := range inodes {
		require.Equal(t, 1, n, "file %x has so many names", id)
	}
}

// testDirMoveStorm: directories that are moved into each other by many nodes at
// once, some of whom are killed, stay a tree. N5
func testDirMoveStorm(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	const n = 5
	dirs := []meta.InodeID{meta.RootDir}
	for i := range n {
		dirs = append(dirs, mkdir(t, c, meta.RootDir, fmt.Sprint(i)).Inode)
	}
	for _, kill := range []bool{false, true} {
		storm(t, s, 4, 4, kill, func(rnd *rand.Rand, c *meta.Catalog) error {
			// Where the directory is now, as far as a walk tells.
			name := fmt.Sprint(rnd.IntN(n))
			var from meta.Place
			for _, d := range dirs {
				if _, err := c.Lookup(t.Context(), d, name); err == nil {
					from = meta.Place{Dir: d, Name: name}
					break
				}
			}
			if from.Dir == 0 {
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			_, err := c.Rename(ctx, from, meta.Place{Dir: dirs[rnd.IntN(len(dirs))], Name: name}, meta.RenameOptions{})
			if !expected(err) {
				return err
			}
			return nil
		})
		checkTree(t, c, dirs)
	}
}

// checkTree checks that each directory is found once from the root, and knows
// its parent.
func checkTree(t *testing.T, c *meta.Catalog, dirs []meta.InodeID) {
	t.Helper()
	for _, d := range dirs {
		list(t, c, d) // finishes what is under way
	}
	seen := map[meta.InodeID]bool{meta.RootDir: true}
	var walk func(dir meta.InodeID)
	walk = func(dir meta.InodeID) {
		for name, e := range list(t, c, dir) {
			require.False(t, seen[e.Inode], "%q is in two places", name)
			seen[e.Inode] = true
			d, err := c.Dir(t.Context(), e.Inode)
			require.NoError(t, err)
			require.Equal(t, dir, d.Parent, "%q", name)
			walk(e.Inode)
		}
	}
	walk(meta.RootDir)
	require.Len(t, seen, len(dirs), "all are below the root")
}

// dirLockLease is how long who died with the lock keeps the others waiting.
const dirLockLease = 5 * time.Second

// testDirLockExpires: who dies with the lock keeps the others waiting for as
// long as its lease, and no longer.
func testDirLockExpires(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	d := mkdir(t, c, meta.RootDir, "d")
	mkdir(t, c, meta.RootDir, "x")
	from, to := meta.Place{Dir: meta.RootDir, Name: "x"}, meta.Place{Dir: d.Inode, Name: "x"}
	began := time.Now()
	_, err := meta.NewCatalog(NewMortal(s, 2, true), meta.Options{}).Rename(t.Context(), from, to, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = c.Rename(ctx, from, to, meta.RenameOptions{})
	if err == nil { // the test stood still until the lease had run out
		require.GreaterOrEqual(t, time.Since(began), dirLockLease)
	} else {
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = c.Rename(t.Context(), from, to, meta.RenameOptions{NoReplace: true})
		require.NoError(t, err)
	}
	require.Contains(t, list(t, c, d.Inode), "x")
	require.NotContains(t, list(t, c, meta.RootDir), "x")
}

// testLeftovers: decisions of movers that died are no names, for listings and
// for watches.
func testLeftovers(t *testing.T, s meta.Slots) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	d := mkdir(t, c, meta.RootDir, "d").Inode
	since, err := c.DirVersion(t.Context(), d)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var names []string
	moving := 0
	watched := make(chan error, 1)
	go func() {
		watched <- c.Watch(ctx, d, since, func(_ uint64, evs []meta.DirEvent) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range evs {
				names = append(names, e.Name)
				if e.Moving {
					moving++
				}
			}
		})
	}()
	link(t, c, meta.RootDir, File("f", 1))
	_, err = c.Rename(t.Context(), meta.Place{Dir: meta.RootDir, Name: "f"}, meta.Place{Dir: d, Name: "f"}, meta.RenameOptions{})
	require.NoError(t, err)
	_, err = c.Rename(t.Context(), meta.Place{Dir: d, Name: "f"}, meta.Place{Dir: meta.RootDir, Name: "g"}, meta.RenameOptions{})
	require.NoError(t, err)
	link(t, c, d, File("last", 1))
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(names) > 0 && names[len(names)-1] == "last"
	}, soon, 5*time.Millisecond)
	mu.Lock()
	require.Equal(t, []string{"f", "f", "f", "last"}, names, "came, under way, gone")
	require.Equal(t, 1, moving)
	mu.Unlock()
	stop()
	require.NoError(t, <-watched)

	// Neither they nor what stands for removed names keep a directory.
	for i := range 2 * meta.MaxSets {
		_, err := s.Apply(t.Context(), meta.Slot(fmt.Sprintf("d/%016x", uint64(d))), nil, []meta.Set{{Field: fmt.Sprint("/gone/", i), Value: []byte{}}})
		require.NoError(t, err)
	}
	killed := meta.NewCatalog(NewMortal(s, 2, false), meta.Options{}) // with an open decision
	_, err = killed.Rename(t.Context(), meta.Place{Dir: meta.RootDir, Name: "g"}, meta.Place{Dir: d, Name: "f"}, meta.RenameOptions{})
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.ErrorIs(t, rmdir(t, c, meta.RootDir, "d"), meta.ErrNotEmpty)
	require.NoError(t, unlink(t, c, d, "last", 0))
	require.NoError(t, rmdir(t, c, meta.RootDir, "d"))
	require.Contains(t, list(t, c, meta.RootDir), "g")
}
