package cache

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

// corrupt overwrites part of a file, as a power failure may leave it.
func corrupt(t *testing.T, path string, off, n int64) {
	t.Helper()
	require.NoError(t, os.Chmod(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, n), off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// A power failure takes what was not flushed, and nothing that was: the first
// is found out by its sums, the second trusted.
func TestAnotherBoot(t *testing.T) {
	t.Parallel()
	for _, complete := range []bool{false, true} {
		name := "partial"
		if complete {
			name = "complete"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.BootID = "first"
			o := object(100*bs + 1)
			c := openCache(t, cfg)
			f := openFile(t, c, o)
			put(t, f, o, 0, 1, 2, 70)
			zero := chunk.NewBitmap(o.Blocks())
			zero.Set(5)
			require.NoError(t, f.PutZero(zero))
			c.syncDirty(t.Context(), 0)
			for b := 10; b < 40; b++ {
				put(t, f, o, b)
			}
			zero.Set(6)
			zero.Set(7)
			require.NoError(t, f.PutZero(zero))
			if complete {
				putAll(t, f, o)
				require.True(t, f.Complete())
			}
			path := c.roots[0].path(o.ID, ".data")
			// The process dies with the machine: no Close that flushes.
			c.syncDirtyNever(t)
			require.NoError(t, f.Close())
			require.NoError(t, c.Close())

			for _, b := range []int64{12, 13, 39} { // never reached the disk
				corrupt(t, path, b*bs, bs)
			}
			corrupt(t, path, 20*bs+5, 1) // torn
			g, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = g.WriteAt([]byte{1}, 7*bs+9) // not zero after all
			require.NoError(t, err)
			require.NoError(t, g.Close())

			cfg.BootID = "second"
			c = openCache(t, cfg)
			f = openFile(t, c, o)
			for _, b := range []int{7, 12, 13, 20, 39} {
				require.False(t, f.Has(b), "block %d", b)
			}
			for _, b := range []int{0, 1, 2, 5, 6, 10, 11, 14, 38, 70} {
				require.True(t, f.Has(b), "block %d", b)
			}
			require.False(t, f.Complete())
			requireMostlyRight(t, f, o, 5, 6)
			for b := range o.Blocks() {
				put(t, f, o, b)
			}
			require.True(t, f.Complete())
			requireMostlyRight(t, f, o, 5, 6)
			require.NoError(t, f.Close())
			require.NoError(t, c.Close())

			// The map now vouches under the second boot; a third trusts
			// what Close has flushed and reads none of it.
			corrupt(t, path, 12*bs, 1)
			cfg.BootID = "third"
			c = openCache(t, cfg)
			f = openFile(t, c, o)
			require.True(t, f.Has(12), "flushed blocks are trusted, not read again")
		})
	}
}

// syncDirtyNever makes flushes claim nothing: the test plays a power failure.
func (c *Cache) syncDirtyNever(t *testing.T) {
	t.Helper()
	c.smu.Lock()
	defer c.smu.Unlock()
	clear(c.dirty)
}

// requireMostlyRight checks every present block's bytes; zeros lists the zero
// ones.
func requireMostlyRight(t *testing.T, f chunk.File, o chunk.Object, zeros ...int) {
	t.Helper()
	for b := range o.Blocks() {
		if !f.Has(b) {
			continue
		}
		want := content(o, b)
		for _, z := range zeros {
			if z == b {
				want = make([]byte, len(want))
			}
		}
		got := make([]byte, len(want))
		_, err := f.Reader().ReadAt(got, o.Block(b).Off)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "block %d", b)
		sum, ok := f.Sum(b)
		require.True(t, ok)
		require.Equal(t, chunk.Sum(want), sum)
	}
}

// What happens to a map or a data file between two runs never makes wrong
// bytes; at worst the object is absent.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	const n = 100
	for _, tc := range []struct {
		name   string
		broken func(t *testing.T, mapPath, dataPath string)
		absent bool
		have   int
	}{
		{"whole", func(*testing.T, string, string) {}, false, n - 1},
		{"no map", func(t *testing.T, m, _ string) { require.NoError(t, os.Remove(m)) }, true, 0},
		{"no data", func(t *testing.T, _, d string) { require.NoError(t, os.Remove(d)) }, true, 0},
		{"empty map", func(t *testing.T, m, _ string) { require.NoError(t, os.Truncate(m, 0)) }, true, 0},
		{"short map", func(t *testing.T, m, _ string) { require.NoError(t, os.Truncate(m, 2*sectorSize)) }, true, 0},
		{"long map", func(t *testing.T, m, _ string) { require.NoError(t, os.Truncate(m, 9*sectorSize)) }, true, 0},
		{"zeroed map", func(t *testing.T, m, _ string) { corrupt(t, m, 0, 3*sectorSize) }, true, 0},
		{"torn header", func(t *testing.T, m, _ string) { corrupt(t, m, 50, 4) }, true, 0},
		{"torn group", func(t *testing.T, m, _ string) { corrupt(t, m, sectorSize+100, 4) }, true, 0},
		{"lost group", func(t *testing.T, m, _ string) { corrupt(t, m, 2*sectorSize, sectorSize) }, false, groupBlocks},
		{"swapped groups", func(t *testing.T, m, _ string) {
			b, err := os.ReadFile(m)
			require.NoError(t, err)
			b = append(append(b[:sectorSize:sectorSize], b[2*sectorSize:]...), b[sectorSize:2*sectorSize]...)
			require.NoError(t, os.WriteFile(m, b, 0o600))
		}, true, 0},
		{"short data", func(t *testing.T, _, d string) { require.NoError(t, os.Truncate(d, 50*bs+1)) }, false, 50},
		{"empty data", func(t *testing.T, _, d string) { require.NoError(t, os.Truncate(d, 0)) }, false, 0},
		{"long data", func(t *testing.T, _, d string) { require.NoError(t, os.Truncate(d, (n+1)*bs)) }, true, 0},
		{"data is a directory", func(t *testing.T, _, d string) {
			require.NoError(t, os.Remove(d))
			require.NoError(t, os.Mkdir(d, 0o700))
		}, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Log = nil
			o := object(n * bs)
			c := openCache(t, cfg)
			f := openFile(t, c, o)
			for b := range n - 1 {
				put(t, f, o, b)
			}
			require.NoError(t, f.Close())
			require.NoError(t, c.Close())
			tc.broken(t, c.roots[0].path(o.ID, ".map"), c.roots[0].path(o.ID, ".data"))
			c = openCache(t, cfg)
			_, _, ok := c.Peek(o.ID)
			require.Equal(t, tc.absent, !ok)
			f = openFile(t, c, o)
			require.Equal(t, tc.have, checkHeld(t, f, o))
			putAll(t, f, o)
			require.Equal(t, n, checkHeld(t, f, o))
		})
	}
}

// A complete file may be read by handles that nobody knows of: when it is found
// wanting it is replaced, never repaired.
func TestSealedIsNeverRepaired(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	o := object(4 * bs)
	c := openCache(t, cfg)
	fill(t, c, o)
	require.NoError(t, c.Close())
	path := c.roots[0].path(o.ID, ".data")
	stray, err := os.Open(path)
	require.NoError(t, err)
	defer stray.Close()
	require.NoError(t, os.Truncate(path, 3*bs))
	c = openCache(t, cfg)
	f := openFile(t, c, o)
	require.Zero(t, checkHeld(t, f, o))
	putAll(t, f, o)
	a, err := stray.Stat()
	require.NoError(t, err)
	b, err := f.Reader().Stat()
	require.NoError(t, err)
	require.False(t, os.SameFile(a, b))
	require.EqualValues(t, 3*bs, a.Size())
}

// A map that is full but was not sealed any more is sealed when it is opened.
func TestSealIsCaughtUp(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	o := object(2 * bs)
	c := openCache(t, cfg)
	fill(t, c, o)
	require.NoError(t, c.Close())
	mapPath, dataPath := c.roots[0].path(o.ID, ".map"), c.roots[0].path(o.ID, ".data")
	raw, err := os.ReadFile(mapPath)
	require.NoError(t, err)
	h, err := decodeHeader(kindObject, raw)
	require.NoError(t, err)
	require.True(t, h.sealed)
	h.sealed = false
	copy(raw, h.encode())
	require.NoError(t, os.WriteFile(mapPath, raw, 0o600))
	require.NoError(t, os.Chmod(dataPath, 0o600))
	c = openCache(t, cfg)
	f := openFile(t, c, o)
	require.Equal(t, 2, checkHeld(t, f, o))
	st, err := os.Stat(dataPath)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o444), st.Mode().Perm())
	raw, err = os.ReadFile(mapPath)
	require.NoError(t, err)
	h, err = decodeHeader(kindObject, raw)
	require.NoError(t, err)
	require.True(t, h.sealed)
}

// Facts that differ from those on disk are of another object.
func TestOtherFacts(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	c := openCache(t, cfg)
	o := object(4 * bs)
	fill(t, c, o)
	c.syncDirty(t.Context(), 0)
	c.closeIdle(0, true)
	o.Size -= 10
	f := openFile(t, c, o)
	require.Zero(t, checkHeld(t, f, o))
	require.Equal(t, 1, c.Stats().Objects)
}

func TestStrayFilesAreRemoved(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Log = nil
	c := openCache(t, cfg)
	o := object(bs)
	fill(t, c, o)
	require.NoError(t, c.Close())
	dir := filepath.Join(cfg.Roots[0], "objects", "ab")
	id := "ab" + chunk.NewObjectID().String()[2:]
	for _, path := range []string{
		filepath.Join(cfg.Roots[0], rootFileName+".123.tmp"),
		filepath.Join(dir, id+".data"),
		filepath.Join(dir, id+".map.tmp"),
		filepath.Join(dir, "junk"),
		filepath.Join(dir, id+".sums"),
	} {
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	c = openCache(t, cfg)
	c.places.sweep(t.Context())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	tmp, err := filepath.Glob(filepath.Join(cfg.Roots[0], "*.tmp"))
	require.NoError(t, err)
	require.Empty(t, tmp)
	require.Equal(t, 1, c.Stats().Objects)
}

// Whatever bytes a map holds, it is refused or means what a map can mean.
func FuzzMap(f *testing.F) {
	o := object(70 * bs)
	z := &zeroSums{}
	t := newTable(o, z)
	raw := header{kind: kindObject, obj: o, boot: bootBytes("x"), sealed: true}.encode()
	for i := range t.groups {
		t.groups[i].sums[3].Store(77)
		b := make([]byte, sectorSize)
		t.encodeGroup(b, i, groupBits{have: 0b111000 & t.valid(i), synced: 0b1000, zero: 0b10000})
		raw = append(raw, b...)
	}
	f.Add(raw)
	f.Add(raw[:sectorSize])
	f.Add(raw[:2*sectorSize+9])
	f.Add([]byte{})
	for _, at := range []int{3, 9, 13, 20, 49, 57, 70, 90, crcAt, sectorSize, sectorSize + 9, sectorSize + 30, 2 * sectorSize} {
		b := bytes.Clone(raw)
		b[at] ^= 0x10
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkDecode(t, b, z)
		checkDecode(t, repaired(b), z)
	})
}

// repaired returns the bytes with every checksum made right, so that what is
// behind them is tried as well.
func repaired(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) < sectorSize {
		return b
	}
	copy(b, kindObject)
	le := binary.LittleEndian
	le.PutUint32(b[8:], mapVersion)
	le.PutUint32(b[crcAt:], chunk.Sum(b[:crcAt]))
	id := chunk.ObjectID(b[16:32])
	for i := 0; sectorSize*(i+2) <= len(b); i++ {
		g := b[sectorSize*(i+1) : sectorSize*(i+2)]
		if !allZero(g) {
			le.PutUint32(g[crcAt:], groupSum(id, i, g))
		}
	}
	return b
}

func checkDecode(t *testing.T, b []byte, z *zeroSums) {
	for _, kind := range []string{kindObject, kindSums} {
		h, tab, err := decodeMap(kind, b, z)
		if err != nil {
			require.ErrorIs(t, err, errMap)
			continue
		}
		n := h.obj.Blocks()
		if h.obj.Validate() != nil || int64(len(b)) != mapSize(h.obj) {
			t.Fatal("facts that no object has")
		}
		_, err = chunk.BitmapFrom(tab.Have().Bytes(), n)
		require.NoError(t, err)
		have := 0
		for blk := range n {
			_, ok := tab.Sum(blk)
			if ok != tab.Has(blk) || !ok && (tab.isZero(blk) || tab.isSynced(blk)) {
				t.Fatalf("block %d is not present and more", blk)
			}
			if ok {
				have++
			}
		}
		if (have == n) != tab.Complete() || tab.Have().Count() != have {
			t.Fatal("miscounted")
		}
	}
}

// Any change of a map's bytes is noticed: no flipped bit makes a block present.
func TestMapFlips(t *testing.T) {
	t.Parallel()
	o := object(3 * bs)
	tab := newTable(o, &zeroSums{})
	raw := header{kind: kindObject, obj: o}.encode()
	b := make([]byte, sectorSize)
	tab.encodeGroup(b, 0, groupBits{have: 1})
	raw = append(raw, b...)
	_, _, err := decodeMap(kindObject, raw, tab.zeros)
	require.NoError(t, err)
	for at := range raw {
		for bit := range 8 {
			raw[at] ^= 1 << bit
			_, _, err := decodeMap(kindObject, raw, tab.zeros)
			require.ErrorIs(t, err, errMap, "byte %d bit %d", at, bit)
			raw[at] ^= 1 << bit
		}
	}
}
