package metatest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// RunCatalog tries the catalog's rules over a store. open is as in Run.
func RunCatalog(t *testing.T, open func(t *testing.T) meta.Slots) {
	for name, fn := range map[string]func(*testing.T, *meta.Catalog){
		"Join":        testJoin,
		"Link":        testLink,
		"Replace":     testReplace,
		"Unlink":      testUnlink,
		"Rmdir":       testRmdir,
		"RmdirDead":   testRmdirDead,
		"Rename":      testRename,
		"RenameRace":  testRenameRace,
		"SetAttr":     testSetAttr,
		"XAttrs":      testXAttrs,
		"XAttrRace":   testXAttrRace,
		"Publish":     testPublish,
		"PublishRace": testPublishRace,
		"References":  testReferences,
		"ReferRace":   testReferRace,
		"PutSums":     testPutSums,
		"RmdirRace":   testRmdirRace,
		"LinkMany":    testLinkMany,
		"NewDir":      testNewDir,
		"RemoveTree":  testRemoveTree,
		"Objects":     testObjects,
		"HugeObject":  testHugeObject,
		"Sums":        testSums,
		"SumsRace":    testSumsRace,
		"Damaged":     testDamaged,
		"Locate":      testLocate,
		"LocateMany":  testLocateMany,
		"Announce":    testAnnounce,
		"Nodes":       testNodes,
		"NodeTaken":   testNodeTaken,
		"NodeRejoins": testNodeRejoins,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			t.Cleanup(func() { _ = s.Close() })
			fn(t, meta.NewCatalog(s, meta.Options{}))
		})
	}
	for name, fn := range map[string]func(*testing.T, meta.Slots){
		"RenameLoop":   testRenameLoop,
		"RenameCrash":  testRenameCrash,
		"RenameStorm":  testRenameStorm,
		"DirMoveStorm": testDirMoveStorm,
		"DirLockEnds":  testDirLockExpires,
		"LateMover":    testLateMover,
		"LateAdopt":    testLateAdopt,
		"LostAnswer":   testLostAnswer,
		"MovedReplace": testMovedReplace,
		"LateSource":   testLateSource,
		"ReferSlips":   testReferSlips,
		"RmdirCrash":   testRmdirCrash,
		"LateRmdir":    testLateRmdir,
		"Leftovers":    testLeftovers,
		"Expiry":       testExpiry,
		"Expire":       testExpire,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			t.Cleanup(func() { _ = s.Close() })
			fn(t, s)
		})
	}
}

// File returns an entry of a file of one block that is an object of its own.
func File(name string, size int64) meta.Entry {
	e := meta.Entry{Name: name, Kind: meta.KindFile, Inode: meta.NewInodeID(), Mode: 0o644, Size: size, MtimeNs: 1, CtimeNs: 2}
	if size > 0 {
		e.Object = chunk.Object{
			ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: size,
			ChunkSize: 4 * chunk.MinBlockSize, BlockSize: chunk.MinBlockSize,
		}
	}
	return e
}

// Join makes the cluster of an empty store.
func Join(t *testing.T, c *meta.Catalog) meta.StoreInfo {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		info, err := c.Join(t.Context(), meta.JoinOptions{Create: true})
		if errors.Is(err, meta.ErrUnavailable) && time.Now().Before(end) {
			continue // a server that has just begun may take its time
		}
		require.NoError(t, err)
		return info
	}
}

func list(t *testing.T, c *meta.Catalog, dir meta.InodeID) map[string]meta.Entry {
	t.Helper()
	got := map[string]meta.Entry{}
	_, err := c.List(t.Context(), dir, func(page []meta.Entry) error {
		for _, e := range page {
			if _, twice := got[e.Name]; twice {
				t.Errorf("%q is listed twice", e.Name)
			}
			got[e.Name] = e
		}
		return nil
	})
	require.NoError(t, err)
	return got
}

func unlink(t *testing.T, c *meta.Catalog, dir meta.InodeID, name string, ifVersion uint64) error {
	_, _, err := c.Unlink(t.Context(), dir, name, ifVersion)
	return err
}

func rmdir(t *testing.T, c *meta.Catalog, dir meta.InodeID, name string) error {
	_, err := c.Rmdir(t.Context(), dir, name)
	return err
}

func testJoin(t *testing.T, c *meta.Catalog) {
	_, err := c.Join(t.Context(), meta.JoinOptions{})
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, err = c.Join(t.Context(), meta.JoinOptions{Create: true, ChunkSize: 5})
	require.ErrorContains(t, err, "chunk size")

	infos := make([]meta.StoreInfo, 8)
	var wg sync.WaitGroup
	for i := range infos {
		wg.Go(func() {
			var err error
			if infos[i], err = c.Join(t.Context(), meta.JoinOptions{Create: true, ChunkSize: 8 << 20}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	created := 0
	for _, info := range infos {
		if info.Created {
			created++
		}
		info.Created = infos[0].Created
		require.Equal(t, infos[0], info, "one cluster")
	}
	require.Equal(t, 1, created)
	require.Equal(t, int64(8<<20), infos[0].ChunkSize)
	require.Len(t, infos[0].Secret, 32)

	d, err := c.Dir(t.Context(), meta.RootDir)
	require.NoError(t, err)
	require.Equal(t, uint32(0o755), d.Mode)
	require.Empty(t, list(t, c, meta.RootDir))
}

func testLink(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	want := map[string]meta.Entry{}
	add := func(e meta.Entry) {
		got, err := c.Link(t.Context(), meta.RootDir, e)
		require.NoError(t, err, "%q", e.Name)
		found, err := c.Lookup(t.Context(), meta.RootDir, e.Name)
		require.NoError(t, err)
		require.Equal(t, got, found)
		require.NotZero(t, got.Version)
		got.Version = e.Version
		require.Equal(t, e, got)
		want[e.Name] = found
	}
	for i, n := range anyNames() {
		if meta.CheckName(n) == nil {
			add(File(n, int64(i)))
		}
	}
	add(meta.Entry{Name: "link", Kind: meta.KindSymlink, Inode: meta.NewInodeID(), Mode: 0o777, Target: "../a/\xff\n"})
	sparse := File("sparse", 1<<40)
	sparse.Object.Sparse, sparse.Object.BlockSize, sparse.Object.ChunkSize = true, chunk.DefaultBlockSize, chunk.DefaultChunkSize
	add(sparse)
	d, err := c.Mkdir(t.Context(), meta.RootDir, "dir", meta.Attrs{Mode: 0o755, UID: 7, GID: 8, MtimeNs: 9})
	require.NoError(t, err)
	want["dir"] = d
	require.Equal(t, want, list(t, c, meta.RootDir))

	for _, e := range []meta.Entry{File("dir", 1), File("link", 1), File("index", 1)} {
		_, err = c.Link(t.Context(), meta.RootDir, e)
		require.ErrorIs(t, err, meta.ErrExist)
	}
	_, err = c.Mkdir(t.Context(), meta.RootDir, "index", meta.Attrs{Mode: 0o755})
	require.ErrorIs(t, err, meta.ErrExist)
	_, err = c.Link(t.Context(), meta.NewInodeID(), File("x", 1))
	require.ErrorIs(t, err, meta.ErrNotFound, "no such directory")
	_, err = c.Lookup(t.Context(), meta.RootDir, "x")
	require.ErrorIs(t, err, meta.ErrNotFound)
	for _, bad := range []string{"", ".", "..", "a/b", "a\x00", string(make([]byte, 256))} {
		_, err = c.Link(t.Context(), meta.RootDir, File(bad, 1))
		require.ErrorIs(t, err, meta.ErrName, "%q", bad)
		_, err = c.Lookup(t.Context(), meta.RootDir, bad)
		require.ErrorIs(t, err, meta.ErrName, "%q", bad)
	}
}

func testReplace(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	old, err := c.Link(t.Context(), meta.RootDir, File("a", 1))
	require.NoError(t, err)
	next := File("a", 2)
	next.Inode = old.Inode
	got, err := c.Replace(t.Context(), meta.RootDir, next, old.Version)
	require.NoError(t, err)
	require.Greater(t, got.Version, old.Version)
	found, err := c.Lookup(t.Context(), meta.RootDir, "a")
	require.NoError(t, err)
	require.Equal(t, got, found)
	_, err = c.Replace(t.Context(), meta.RootDir, next, old.Version)
	require.ErrorIs(t, err, meta.ErrConflict)
	_, err = c.Replace(t.Context(), meta.RootDir, File("b", 1), old.Version)
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, err = c.Replace(t.Context(), meta.RootDir, next, 0)
	require.Error(t, err)
}

func testUnlink(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	a, err := c.Link(t.Context(), meta.RootDir, File("a", 1))
	require.NoError(t, err)
	require.ErrorIs(t, unlink(t, c, meta.RootDir, "a", a.Version+1), meta.ErrConflict)
	require.NoError(t, unlink(t, c, meta.RootDir, "a", a.Version))
	require.ErrorIs(t, unlink(t, c, meta.RootDir, "a", 0), meta.ErrNotFound)
	_, err = c.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	require.ErrorIs(t, unlink(t, c, meta.RootDir, "d", 0), meta.ErrIsDir)
}

func testRmdir(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	d, err := c.Mkdir(t.Context(), meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	_, err = c.Link(t.Context(), d.Inode, File("a", 1))
	require.NoError(t, err)
	require.ErrorIs(t, rmdir(t, c, meta.RootDir, "d"), meta.ErrNotEmpty)
	require.NoError(t, unlink(t, c, d.Inode, "a", 0))
	require.NoError(t, rmdir(t, c, meta.RootDir, "d"))
	require.ErrorIs(t, rmdir(t, c, meta.RootDir, "d"), meta.ErrNotFound)
	_, err = c.Link(t.Context(), d.Inode, File("b", 1))
	require.ErrorIs(t, err, meta.ErrNotFound, "a removed directory takes no names")
	require.ErrorIs(t, c.LinkMany(t.Context(), d.Inode, []meta.Entry{File("b", 1)}), meta.ErrNotFound)
	_, err = c.Dir(t.Context(), d.Inode)
	require.ErrorIs(t, err, meta.ErrNotFound)
	_, err = c.Link(t.Context(), meta.RootDir, File("f", 1))
	require.NoError(t, err)
	require.ErrorIs(t, rmdir(t, c, meta.RootDir, "f"), meta.ErrNotDir)
	require.Error(t, c.DiscardDir(t.Context(), meta.RootDir))
}

// testRmdirRace: of a removal and a creation in the same directory one wins.
func testRmdirRace(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	won := map[bool]int{}
	for i := range 60 {
		name := fmt.Sprint(i)
		d, err := c.Mkdir(t.Context(), meta.RootDir, name, meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		var rmErr, linkErr error
		var wg sync.WaitGroup
		wg.Go(func() { rmErr = rmdir(t, c, meta.RootDir, name) })
		wg.Go(func() {
			for range i % 3 { // let either come first
				_, _ = c.Lookup(t.Context(), meta.RootDir, name)
			}
			_, linkErr = c.Link(t.Context(), d.Inode, File("x", 1))
		})
		wg.Wait()
		if rmErr == nil {
			require.ErrorIs(t, linkErr, meta.ErrNotFound)
		} else {
			require.ErrorIs(t, rmErr, meta.ErrNotEmpty)
			require.NoError(t, linkErr)
		}
		_, err = c.Lookup(t.Context(), meta.RootDir, name)
		require.Equal(t, rmErr == nil, errors.Is(err, meta.ErrNotFound))
		won[rmErr == nil]++
	}
	t.Logf("removals that won: %d, lost: %d", won[true], won[false])
}

func testLinkMany(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	const n = 10_000
	entries := make([]meta.Entry, n)
	for i := range entries {
		entries[i] = File(fmt.Sprintf("f%05d", i), int64(i))
	}
	dir, err := c.NewDir(t.Context(), meta.RootDir, meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	require.NoError(t, c.LinkMany(t.Context(), dir, entries))
	got := list(t, c, dir)
	require.Len(t, got, n)
	last := uint64(0)
	for _, e := range entries {
		if g := got[e.Name]; g != e {
			t.Fatalf("%q: want %+v, got %+v", e.Name, e, g)
		}
		last = max(last, e.Version)
	}
	at, err := c.DirVersion(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, at, last, "the directory's version is that of what came last")
	err = c.LinkMany(t.Context(), dir, []meta.Entry{File("new", 1), File("f00007", 1)})
	require.ErrorIs(t, err, meta.ErrExist)
	require.ErrorContains(t, err, "f00007")
	_, err = c.Lookup(t.Context(), dir, "new")
	require.ErrorIs(t, err, meta.ErrNotFound, "a batch is all or nothing")
	require.ErrorIs(t, c.LinkMany(t.Context(), dir, []meta.Entry{File("x", 1), File("x", 1)}), meta.ErrExist)
	require.NoError(t, c.LinkMany(t.Context(), dir, nil))
}

func testNewDir(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	id, err := c.NewDir(t.Context(), meta.RootDir, meta.Attrs{Mode: 0o750, UID: 3})
	require.NoError(t, err)
	require.NoError(t, c.LinkMany(t.Context(), id, []meta.Entry{File("a", 1)}))
	require.Empty(t, list(t, c, meta.RootDir), "no name leads to it")
	_, err = c.Link(t.Context(), meta.RootDir, meta.Entry{Name: "d", Kind: meta.KindDir, Inode: id, Mode: 0o750, UID: 3})
	require.NoError(t, err)
	d, err := c.Dir(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, meta.RootDir, d.Parent)
	require.Equal(t, uint32(3), d.UID)
	require.Len(t, list(t, c, id), 1)
}

// tree makes dirs directories of files files each below a name, and returns the
// top's entry.
func tree(t *testing.T, c *meta.Catalog, name string, dirs, files int, set chunk.SetID) meta.Entry {
	t.Helper()
	top, err := c.Mkdir(t.Context(), meta.RootDir, name, meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	for d := range dirs {
		sub, err := c.Mkdir(t.Context(), top.Inode, fmt.Sprint("d", d), meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		entries := make([]meta.Entry, files)
		for i := range entries {
			entries[i] = File(fmt.Sprint("f", i), 1)
			entries[i].Object.Set = set
		}
		require.NoError(t, c.LinkMany(t.Context(), sub.Inode, entries))
	}
	return top
}

func testRemoveTree(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	set := chunk.NewSetID()
	tree(t, c, "all", 3, 250, set)
	paths := map[string]bool{}
	n, err := c.RemoveTree(t.Context(), meta.RootDir, "all", nil, func(p string, _ meta.Entry) { paths[p] = true })
	require.NoError(t, err)
	require.Equal(t, meta.Removed{Files: 750, Dirs: 4}, n)
	require.Len(t, paths, 750)
	require.Contains(t, paths, "all/d2/f249")
	require.Empty(t, list(t, c, meta.RootDir))
	_, err = c.RemoveTree(t.Context(), meta.RootDir, "all", nil, nil)
	require.ErrorIs(t, err, meta.ErrNotFound)

	// What another made stays, and so do the directories above it.
	top := tree(t, c, "some", 2, 5, set)
	d1, err := c.Lookup(t.Context(), top.Inode, "d1")
	require.NoError(t, err)
	theirs, err := c.Link(t.Context(), d1.Inode, File("theirs", 1))
	require.NoError(t, err)
	ours := func(_ string, e meta.Entry) bool { return e.Object.Set == set }
	n, err = c.RemoveTree(t.Context(), meta.RootDir, "some", ours, nil)
	require.NoError(t, err)
	require.Equal(t, int64(10), n.Files)
	require.Equal(t, int64(1), n.Dirs)
	require.NotZero(t, n.Kept)
	require.Equal(t, map[string]meta.Entry{"theirs": theirs}, list(t, c, d1.Inode))

	_, err = c.Link(t.Context(), meta.RootDir, File("file", 1))
	require.NoError(t, err)
	n, err = c.RemoveTree(t.Context(), meta.RootDir, "file", nil, nil)
	require.NoError(t, err)
	require.Equal(t, meta.Removed{Files: 1}, n)
}
