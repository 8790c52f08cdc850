package cache

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	dir := t.TempDir()
	o := object(2 * bs)
	good := sourceFile(t, o, dir)
	for name, s := range map[string]Source{
		"relative":  {Object: o, Path: "x", ID: good.ID},
		"missing":   {Object: o, Path: filepath.Join(dir, "missing"), ID: good.ID},
		"size":      {Object: object(bs), Path: good.Path, ID: good.ID},
		"empty":     {Object: object(0), Path: good.Path},
		"no object": {Path: good.Path, ID: good.ID},
		"zeros":     {Object: o, Path: good.Path, ID: good.ID, Zero: chunk.NewBitmap(9)},
	} {
		require.Error(t, c.RegisterInPlace(t.Context(), []Source{good, s}), name)
		require.Zero(t, c.Stats().InPlace, "all or nothing")
	}
	require.NoError(t, c.RegisterInPlace(t.Context(), nil))
	require.NoError(t, c.RegisterInPlace(t.Context(), []Source{good, good}))
	require.Equal(t, 1, c.Stats().InPlace)
	other := good
	other.Object.ChunkSize = bs
	require.Error(t, c.RegisterInPlace(t.Context(), []Source{other}), "other facts under one id")
}

// A path through links is resolved once; a link made later is not followed.
func TestRegisterThroughLinks(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	require.NoError(t, os.Mkdir(real, 0o755))
	o := object(2 * bs)
	s := sourceFile(t, o, real)
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(real, link))
	leaf := filepath.Join(dir, "leaf")
	require.NoError(t, os.Symlink(filepath.Join(link, filepath.Base(s.Path)), leaf))
	s2 := s
	s2.Object = o
	s2.Path = leaf
	require.NoError(t, c.RegisterInPlace(t.Context(), []Source{s2}))
	i, ok := c.Stat(o.ID)
	require.True(t, ok)
	require.Equal(t, s.Path, i.Path)
	openFile(t, c, o)
	require.NoError(t, os.Rename(real, real+"2"))
	require.NoError(t, os.Symlink(real+"2", real))
	_, err := c.Open(t.Context(), o)
	require.ErrorIs(t, err, chunk.ErrSourceChanged)
	require.ErrorContains(t, err, "link")
}

func TestForget(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	dir := t.TempDir()
	var sources []Source
	set := chunk.NewSetID()
	for i := range 7 {
		o := object(2 * bs)
		if i < 5 {
			o.Set = set
		}
		sources = append(sources, sourceFile(t, o, dir))
	}
	require.NoError(t, c.RegisterInPlace(t.Context(), sources))
	blk, err := c.Block(t.Context(), sources[0].Object.ID, 0)
	require.NoError(t, err)
	require.NoError(t, c.ForgetInPlace(t.Context(), []chunk.ObjectID{sources[0].Object.ID, sources[6].Object.ID, chunk.NewObjectID()}))
	require.Equal(t, content(sources[0].Object, 0), readBlock(t, blk), "what is being sent is sent")
	require.Equal(t, 5, c.Stats().InPlace)
	_, err = c.Block(t.Context(), sources[0].Object.ID, 0)
	require.ErrorIs(t, err, chunk.ErrNotHeld)
	require.NoFileExists(t, c.roots[0].path(sources[0].Object.ID, ".sums"))
	ids, err := c.ForgetInPlaceSet(t.Context(), set)
	require.NoError(t, err)
	require.Len(t, ids, 4)
	require.Equal(t, 1, c.Stats().InPlace)
	require.NoError(t, c.Close())
	c = openCache(t, cfg)
	require.Equal(t, 1, c.Stats().InPlace)
	sets, err := c.Sets(t.Context())
	require.NoError(t, err)
	require.Equal(t, []SetInfo{{Set: sources[5].Object.Set, Keeper: true, Complete: true}}, sets)
	require.FileExists(t, sources[0].Path, "the files stay")
}

// Registered again elsewhere: what was bound stays bound, and is verified
// before it is handed out.
func TestRegisterElsewhere(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	o := object(3 * bs)
	c, s := registered(t, cfg, o)
	for b := range 3 {
		blk, err := c.Block(t.Context(), o.ID, b)
		require.NoError(t, err)
		readBlock(t, blk)
	}
	under, err := c.Block(t.Context(), o.ID, 0)
	require.NoError(t, err)
	moved := s
	moved.Path += ".copy"
	require.NoError(t, os.WriteFile(moved.Path, wholeContent(o), 0o644))
	writeAt(t, moved.Path, 2*bs, "other")
	moved.ID = identityAt(t, moved.Path)
	require.NoError(t, c.RegisterInPlace(t.Context(), []Source{moved}))
	require.NoError(t, os.Remove(s.Path))
	readBlock(t, under)
	blk, err := c.Block(t.Context(), o.ID, 1)
	require.NoError(t, err)
	require.Equal(t, moved.Path, blk.File.Name())
	readBlock(t, blk)
	_, err = c.Block(t.Context(), o.ID, 2)
	require.ErrorIs(t, err, chunk.ErrDamaged)
}
