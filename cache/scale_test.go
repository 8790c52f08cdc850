package cache

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Starting with 100,000 objects reads names only; the rest is read beside the
// work.
func TestStartWithManyObjects(t *testing.T) {
	const n = many
	cfg := config(t)
	cfg.Roots = []string{smallDisk(t, "size=2g,nr_inodes=300k")}
	c := openCache(t, cfg)
	require.NoError(t, c.Close())
	set := chunk.NewSetID()
	var one chunk.Object
	for i := range n {
		o := object(bs)
		o.Set = set
		binary.BigEndian.PutUint32(o.ID[4:], uint32(i))
		plant(t, c, o, one)
		if i == 0 {
			one = o
		}
	}
	began := cpuTime(t)
	c = openCache(t, cfg)
	took := cpuTime(t) - began
	f := openFile(t, c, one)
	require.Equal(t, 1, checkHeld(t, f, one))
	require.NoError(t, f.Close())
	require.Equal(t, n, c.Stats().Objects)
	began = cpuTime(t)
	sets, err := c.Sets(t.Context())
	require.NoError(t, err)
	t.Logf("%d objects: open %v, scan %v", n, took, cpuTime(t)-began)
	require.Equal(t, []SetInfo{{Set: set, Complete: true}}, sets)
	require.Less(t, took, 2*time.Second)
	require.Equal(t, n, c.Stats().Complete)
	require.Positive(t, c.makeRoom(nil, 1, false))
}

// cpuTime returns what this process has used: on a machine that others use too
// it says more than the time of day. These tests run beside no other.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var ru unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &ru))
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// plant puts the files of a complete one-block object where a cache would. All
// but the first share one data file.
func plant(t testing.TB, c *Cache, o, first chunk.Object) {
	t.Helper()
	tab := newTable(o, c.zeros)
	data := content(o, 0)
	tab.groups[0].sums[0].Store(chunk.Sum(data))
	raw := header{kind: kindObject, obj: o, sealed: true, boot: c.boot}.encode()
	b := make([]byte, sectorSize)
	tab.encodeGroup(b, 0, groupBits{have: 1, synced: 1})
	require.NoError(t, os.WriteFile(c.roots[0].path(o.ID, ".map"), append(raw, b...), 0o600))
	if path := c.roots[0].path(o.ID, ".data"); first.ID.IsZero() {
		require.NoError(t, os.WriteFile(path, data, 0o444))
	} else {
		require.NoError(t, os.Link(c.roots[0].path(first.ID, ".data"), path))
	}
}

// Registering 100,000 files is one transaction.
func TestRegisterManyFiles(t *testing.T) {
	const n = many
	cfg := config(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(path, make([]byte, bs), 0o644))
	id := identityAt(t, path)
	set := chunk.NewSetID()
	sources := make([]Source, n)
	for i := range sources {
		o := object(bs)
		o.Set = set
		sources[i] = Source{Object: o, Path: path, ID: id}
	}
	c := openCache(t, cfg)
	began := cpuTime(t)
	require.NoError(t, c.RegisterInPlace(t.Context(), sources))
	took := cpuTime(t) - began
	require.Equal(t, n, c.Stats().InPlace)
	require.NoError(t, c.Close())
	began = cpuTime(t)
	c = openCache(t, cfg)
	again := cpuTime(t) - began
	require.Equal(t, n, c.Stats().InPlace)
	seen := 0
	require.NoError(t, c.Objects(t.Context(), func(Info) bool { seen++; return true }))
	require.Equal(t, n, seen)
	began = cpuTime(t)
	ids, err := c.ForgetInPlaceSet(t.Context(), set)
	require.NoError(t, err)
	require.Len(t, ids, n)
	t.Logf("%d files: registered in %v, opened in %v, forgotten in %v", n, took, again, cpuTime(t)-began)
	require.Less(t, took, 10*time.Second)
	require.Less(t, again, 2*time.Second)
}

func BenchmarkPut4MiB(b *testing.B) {
	cfg := config(b)
	c := openCache(b, cfg)
	o := chunk.Object{ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: 512 << 20, ChunkSize: 64 << 20, BlockSize: 4 << 20}
	data := make([]byte, o.BlockSize)
	for i := range data {
		data[i] = byte(i)
	}
	f := openFile(b, c, o)
	b.SetBytes(o.BlockSize)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n == o.Blocks() {
			b.StopTimer()
			f.Close()
			c.Drop(b.Context(), o.ID)
			f = openFile(b, c, o)
			n = 0
			b.StartTimer()
		}
		if err := f.Put(n, data, 1); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

func BenchmarkHas(b *testing.B) {
	c := openCache(b, config(b))
	f := openFile(b, c, object(100*bs))
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if f.Has(50) || f.Complete() {
				b.Error("has")
			}
		}
	})
}

func BenchmarkBlock(b *testing.B) {
	for _, kind := range []string{"fetched", "in place"} {
		b.Run(kind, func(b *testing.B) {
			cfg := config(b)
			o := object(100 * bs)
			var c *Cache
			if kind == "fetched" {
				c = openCache(b, cfg)
				fill(b, c, o)
			} else {
				c, _ = registered(b, cfg, o)
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				blk, err := c.Block(b.Context(), o.ID, n%100)
				if err != nil {
					b.Fatal(err)
				}
				blk.Release()
				n++
			}
		})
	}
}
