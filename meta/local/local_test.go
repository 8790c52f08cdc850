package local_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/local"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(t *testing.T, dir string) *local.Table {
	t.Helper()
	tab, err := local.Open(dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tab.Close() })
	return tab
}

func entries(n int) []meta.Entry {
	out := make([]meta.Entry, n)
	for i := range out {
		out[i] = metatest.File(fmt.Sprintf("%05d", i), int64(i))
		out[i].Version = uint64(i + 1)
	}
	return out
}

// TestTable: what is put is there at once, and after a restart.
func TestTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tab := open(t, dir)
	const d, partly, forgotten = meta.InodeID(7), meta.InodeID(8), meta.InodeID(1 << 63)
	es := entries(300)
	odd := metatest.File("\xff\n'", 5)
	es = append(es, odd)
	tab.PutDir(d, 9, es)
	tab.Put(partly, es[3])
	tab.PutDir(forgotten, 9, es[:2])
	tab.ForgetDir(forgotten)
	link := meta.Entry{Name: "l", Kind: meta.KindSymlink, Inode: 3, Target: "x", Version: 3}
	for restart := range 3 {
		if restart > 0 {
			require.NoError(t, tab.Close())
			tab = open(t, dir)
		}
		got, whole := tab.List(d)
		require.True(t, whole)
		require.Equal(t, es, got)
		for _, e := range []meta.Entry{es[0], es[299], odd} {
			one, ok := tab.Entry(d, e.Name)
			require.True(t, ok)
			require.Equal(t, e, one)
		}
		_, ok := tab.Entry(d, "nobody")
		require.False(t, ok)
		_, ok = tab.Entry(99, "0")
		require.False(t, ok)
		_, ok = tab.Entry(d, "\x00")
		require.False(t, ok)
		for _, dir := range []meta.InodeID{partly, forgotten, 99} {
			_, whole = tab.List(dir)
			require.False(t, whole)
		}
		one, ok := tab.Entry(partly, es[3].Name)
		require.True(t, ok)
		require.Equal(t, es[3], one)
	}
	tab.Remove(d, es[0].Name)
	tab.Put(d, link)
	es = append(es[1:300:300], link, odd)
	got, whole := tab.List(d)
	require.True(t, whole)
	require.Equal(t, es, got)
	tab.PutDir(d, 9, nil) // of another history, though of the same version
	got, whole = tab.List(d)
	require.True(t, whole)
	require.Empty(t, got)
}

// TestModel plays random calls against a plain map.
func TestModel(t *testing.T) {
	t.Parallel()
	const seed = 5
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	tab := open(t, dir)
	type state struct {
		whole bool
		names map[string]meta.Entry
	}
	want := map[meta.InodeID]*state{}
	for step := range 400 {
		id := meta.InodeID(rnd.IntN(3) + 1)
		if want[id] == nil {
			want[id] = &state{names: map[string]meta.Entry{}}
		}
		e := metatest.File(fmt.Sprint(rnd.IntN(5)), 3)
		e.Version = uint64(step)
		switch rnd.IntN(8) {
		case 0, 1, 2:
			tab.Put(id, e)
			want[id].names[e.Name] = e
		case 3, 4:
			tab.Remove(id, e.Name)
			delete(want[id].names, e.Name)
		case 5:
			tab.PutDir(id, uint64(step+1), []meta.Entry{e})
			*want[id] = state{whole: true, names: map[string]meta.Entry{e.Name: e}}
		case 6:
			tab.ForgetDir(id)
			want[id].whole = false
		case 7:
			if rnd.IntN(4) == 0 {
				require.NoError(t, tab.Close())
				tab = open(t, dir)
			}
		}
		if rnd.IntN(3) > 0 {
			continue // let changes gather
		}
		for id, st := range want {
			got, whole := tab.List(id)
			require.Equal(t, st.whole, whole, "step %d", step)
			if whole {
				require.Len(t, got, len(st.names), "step %d", step)
			}
			for i := range 5 {
				n := fmt.Sprint(i)
				e, ok := tab.Entry(id, n)
				w, there := st.names[n]
				require.Equal(t, there, ok, "step %d", step)
				require.Equal(t, w, e, "step %d", step)
			}
		}
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tab := open(t, dir)
	_, ok, err := tab.LoadStore()
	require.NoError(t, err)
	require.False(t, ok)
	want := meta.StoreInfo{Cluster: chunk.NewClusterID(), Secret: bytes.Repeat([]byte{7}, 32), Epoch: [16]byte{1}, ChunkSize: 1 << 20}
	require.NoError(t, tab.SaveStore(want))
	require.NoError(t, tab.Close())
	require.NoError(t, tab.Close())
	got, ok, err := open(t, dir).LoadStore()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, got)
}

// Of another epoch of the store, the same version of a directory is another one.
func TestStoreOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tab := open(t, dir)
	info := meta.StoreInfo{Cluster: chunk.NewClusterID(), Secret: bytes.Repeat([]byte{7}, 32), Epoch: [16]byte{1}, ChunkSize: 1 << 20}
	require.NoError(t, tab.SaveStore(info))
	es := entries(10)
	tab.PutDir(5, 7, es)
	require.NoError(t, tab.Close())
	tab = open(t, dir)
	info.Epochs, info.Epoch = []meta.Epoch{info.Epoch}, meta.Epoch{2}
	require.NoError(t, tab.SaveStore(info))
	got, whole := tab.List(5)
	require.True(t, whole, "known as before")
	require.Len(t, got, 10)
	tab.PutDir(5, 7, es[:3])
	require.NoError(t, tab.Close())
	got, whole = open(t, dir).List(5)
	require.True(t, whole)
	require.Len(t, got, 3)
}

// TestDamaged: a file that cannot be used is moved aside, and a new one begun.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"garbage":   func(b []byte) []byte { return bytes.Repeat([]byte("garbage!"), len(b)/8) },
		"cut":       func(b []byte) []byte { return b[:len(b)/2] },
		"tiny":      func([]byte) []byte { return []byte("x") },
		"both meta": func(b []byte) []byte { clear(b[:8192]); return b },
		"format":    func(b []byte) []byte { return bytes.Replace(b, []byte("format\x01"), []byte("format\x09"), -1) },
		"pages":     func(b []byte) []byte { clear(b[8192:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tab := open(t, dir)
			tab.PutDir(1, 9, entries(500))
			require.NoError(t, tab.Close())
			path := filepath.Join(dir, "names.db")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage(b), 0o600))

			var log bytes.Buffer
			tab, err = local.Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			_, whole := tab.List(1)
			require.False(t, whole)
			if name != "empty" { // a file without a byte is a new one
				require.Contains(t, log.String(), "names.db")
				require.FileExists(t, path+".bad")
			}
			require.NoError(t, tab.Close())

			tab = open(t, dir)
			tab.PutDir(1, 9, entries(5))
			got, whole := tab.List(1)
			require.True(t, whole)
			require.Equal(t, entries(5)[3].Name, got[3].Name)
		})
	}
}

func TestInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir)
	_, err := local.Open(dir, nil)
	require.ErrorContains(t, err, "names.db")
	_, err = local.Open(filepath.Join(dir, "nowhere"), nil)
	require.Error(t, err)
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	tab := open(t, t.TempDir())
	es := entries(100)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				id := meta.InodeID(i%5 + 1)
				switch w % 4 {
				case 0:
					tab.PutDir(id, uint64(i), es)
				case 1:
					tab.Put(id, es[i])
				case 2:
					tab.List(id)
				case 3:
					tab.Entry(id, es[i].Name)
				}
			}
		})
	}
	wg.Wait()
}

func TestManyNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tab := open(t, dir)
	es := entries(50_000)
	tab.PutDir(1, 9, es)
	for i := range 30_000 {
		tab.Put(2, es[i])
	}
	require.NoError(t, tab.Close())
	got, whole := open(t, dir).List(1)
	require.True(t, whole)
	require.Len(t, got, len(es))
}
