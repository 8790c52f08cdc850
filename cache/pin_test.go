package cache

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

func TestAPinnedObjectIsNotEvictedOverRestarts(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Roots = append(cfg.Roots, t.TempDir())
	cfg.Size = 30 * bs
	c := openCache(t, cfg)
	before, after, loose := object(10*bs), object(5*bs), object(bs)
	require.NoError(t, c.Pin(t.Context(), []Pin{{Object: before.ID, Note: []byte("n\xff")}}), "nothing of it is here yet")
	fill(t, c, before)
	fill(t, c, after)
	fill(t, c, loose)
	require.NoError(t, c.Pin(t.Context(), []Pin{{Object: after.ID}}))

	check := func() {
		t.Helper()
		for range 12 {
			fill(t, c, object(4*bs))
		}
		require.Equal(t, []bool{true, true, false}, here(c, before, after, loose))
		for _, o := range []chunk.Object{before, after} {
			require.True(t, c.Pinned(o.ID))
			info, ok := c.Stat(o.ID)
			require.True(t, ok)
			require.False(t, info.Keeper, "nobody relies on it")
			_, err := c.Drop(t.Context(), o.ID)
			require.ErrorIs(t, err, ErrKept)
		}
		total, _, err := c.Room(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, total, cfg.Size-15*bs, "what is pinned is no room")
	}
	check()
	require.NoError(t, c.Close())
	c = openCache(t, cfg)
	check()
	require.Len(t, c.Pins(), 2)
	for _, p := range c.Pins() {
		if p.Object == before.ID {
			require.Equal(t, "n\xff", string(p.Note))
		}
	}

	require.NoError(t, c.Unpin(t.Context(), []chunk.ObjectID{before.ID, loose.ID}))
	for range 12 {
		fill(t, c, object(4*bs))
	}
	require.Equal(t, []bool{false, true, false}, here(c, before, after, loose))
	require.NoError(t, c.Close())
	c = openCache(t, cfg)
	require.False(t, c.Pinned(before.ID))
	require.True(t, c.Pinned(after.ID))
}

func TestANewlyPinnedObjectDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Size = 10 * bs
	c := openCache(t, cfg)
	o := object(8 * bs)
	fill(t, c, o)
	require.NoError(t, c.Pin(t.Context(), []Pin{{Object: o.ID}}))
	f := openFile(t, c, object(8*bs))
	putUntilFull(t, f)
	require.NoError(t, f.Close())
	require.Equal(t, []bool{true}, here(c, o))
	require.NoError(t, c.Unpin(t.Context(), []chunk.ObjectID{o.ID}))
	fill(t, c, object(8*bs))
	require.Equal(t, []bool{false}, here(c, o))
}

// putUntilFull stores blocks until the cache has no room for one.
func putUntilFull(t *testing.T, f chunk.File) {
	t.Helper()
	b := make([]byte, bs)
	b[0] = 1
	for i := range 8 {
		if err := f.Put(i, b, chunk.Sum(b)); err != nil {
			require.ErrorIs(t, err, chunk.ErrNoSpace)
			return
		}
	}
	require.Fail(t, "what is pinned was evicted")
}

// The file of an unused object may be on its way to being closed when it is
// pinned, or let go.
func TestPinsOfAnObjectBeingClosed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                    string
		lookBefore, lookBetween bool // at what is here
	}{
		{name: "what is here is known", lookBefore: true},
		{name: "what is here becomes known meanwhile", lookBetween: true},
		{name: "what is here is not known yet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := openCache(t, config(t))
			o := object(4 * bs)
			fill(t, c, o)
			look := func(yes bool) {
				if yes {
					require.NoError(t, c.scan(t.Context()))
				}
			}
			during := func(change func() error) {
				e, f, err := c.acquire(t.Context(), o.ID, nil)
				require.NoError(t, err)
				c.release(e, f)
				look(tt.lookBefore)
				e, f = c.takeIdle(0, true, time.Time{})
				require.NotNil(t, e)
				require.NoError(t, change())
				look(tt.lookBetween)
				c.closeEntry(e, f)
			}
			during(func() error { return c.Pin(t.Context(), []Pin{{Object: o.ID}}) })
			require.Zero(t, c.makeRoom(nil, 1, true))
			require.Equal(t, []bool{true}, here(c, o))

			during(func() error { return c.Unpin(t.Context(), []chunk.ObjectID{o.ID}) })
			require.Positive(t, c.makeRoom(nil, 1, true))
			require.Equal(t, []bool{false}, here(c, o))
		})
	}
}

func TestPinsThatCannotBeReadPinNothing(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	c := openCache(t, cfg)
	o := object(bs)
	require.NoError(t, c.Pin(t.Context(), []Pin{{Object: o.ID}}))
	require.NoError(t, c.Close())
	path := filepath.Join(cfg.Roots[0], pinsName)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	writeFile(t, path, b[:len(b)/2])
	c = openCache(t, cfg)
	require.False(t, c.Pinned(o.ID))
	require.NoError(t, c.Pin(t.Context(), []Pin{{Object: o.ID}}))
	require.True(t, c.Pinned(o.ID))
}

func FuzzPins(f *testing.F) {
	id := chunk.NewObjectID()
	b, err := encodePins(map[chunk.ObjectID]Pin{id: {Object: id, Note: []byte("note")}})
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"pins":[{"object":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodePins(b)
		if err != nil {
			return
		}
		m := map[chunk.ObjectID]Pin{}
		for _, p := range all {
			m[p.Object] = p
		}
		again, err := encodePins(m)
		require.NoError(t, err)
		back, err := decodePins(again)
		require.NoError(t, err)
		require.Len(t, back, len(m))
	})
}
