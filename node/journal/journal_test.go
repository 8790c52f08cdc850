package journal_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/node/journal"
)

func TestMain(m *testing.M) {
	if home := os.Getenv("JOURNAL_CHILD"); home != "" {
		childMain(home)
		return
	}
	leaktest.Main(m)
}

var (
	first  = meta.Epoch{1}
	second = meta.Epoch{2}
)

func open(t testing.TB, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func at(e meta.Epoch, v uint64) meta.Origin { return meta.Origin{Epoch: e, Version: v} }

func put(t testing.TB, j *journal.Journal, dir meta.InodeID, o meta.Origin, entries ...meta.Entry) {
	t.Helper()
	var sets []meta.Set
	for _, e := range entries {
		b, err := meta.MarshalEntry(e, nil)
		require.NoError(t, err)
		sets = append(sets, meta.Set{Field: e.Name, Value: b})
	}
	j.Changed(dir, o, sets)
}

func dirEntry(name string) meta.Entry {
	return meta.Entry{Name: name, Kind: meta.KindDir, Inode: meta.NewInodeID(), Mode: 0o750, UID: 7, MtimeNs: 3, CtimeNs: 4}
}

func names(t testing.TB, j *journal.Journal, dir meta.InodeID) map[string]meta.Offer {
	t.Helper()
	require.NoError(t, j.Flush())
	out := map[string]meta.Offer{}
	after := ""
	for {
		page, err := j.Names(dir, after, 3)
		require.NoError(t, err)
		for _, o := range page {
			require.NotContains(t, out, o.Name)
			out[o.Name] = o
		}
		if len(page) < 3 {
			return out
		}
		after = page[2].Name
	}
}

func dirs(t testing.TB, j *journal.Journal) map[meta.InodeID]journal.Dir {
	t.Helper()
	all, err := j.Dirs()
	require.NoError(t, err)
	out := map[meta.InodeID]journal.Dir{}
	for _, d := range all {
		require.NotContains(t, out, d.ID)
		out[d.ID] = d
	}
	return out
}

// TestJournal: what was done is there at once, and after a restart.
func TestJournal(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	j := open(t, home)
	d := dirEntry("dir")
	f, g := metatest.File("f", 5), metatest.File("\xff\n", 6)
	f.XAttrs, d.XAttrs = "\x06user.a\x00\x01f", "\x06user.a\x00\x01d"
	put(t, j, meta.RootDir, at(first, 5), d)
	put(t, j, d.Inode, at(first, 7), f, g)
	j.Changed(d.Inode, at(first, 9), []meta.Set{{Field: "g"}, {Field: "/tx/1", Value: []byte("x")}})
	other := dirEntry("other")
	other.Version = 3
	j.Way(meta.RootDir, first, other)
	put(t, j, other.Inode, at(second, 1), f)
	put(t, j, 99, at(second, 2), g)
	require.NoError(t, j.SetOffered(first))
	now := time.Unix(1_800_000_000, 0)
	require.NoError(t, j.Touch(now))
	for range 3 {
		got := names(t, j, d.Inode)
		require.Len(t, got, 3)
		require.Equal(t, at(first, 7), got["f"].Origin)
		f.Version = 7
		require.Equal(t, f, got["f"].Entry)
		require.Equal(t, g.Object, got["\xff\n"].Entry.Object)
		require.Equal(t, meta.Offer{Name: "g", Gone: true, Origin: at(first, 9)}, got["g"])
		o, ok := j.Name(d.Inode, "f")
		require.True(t, ok)
		require.Equal(t, got["f"], o)
		_, ok = j.Name(d.Inode, "nobody")
		require.False(t, ok)

		all := dirs(t, j)
		require.Len(t, all, 4)
		require.Equal(t, meta.RootDir, all[d.Inode].Parent)
		require.Equal(t, at(first, 5), all[d.Inode].Way.Origin)
		require.Equal(t, uint32(0o750), all[d.Inode].Self.Mode)
		require.True(t, all[d.Inode].Known)
		require.True(t, all[d.Inode].Names)
		require.Equal(t, at(first, 3), all[other.Inode].Way.Origin)
		require.Equal(t, "other", all[other.Inode].Way.Name)
		require.True(t, all[meta.RootDir].Known)
		require.False(t, all[99].Known)

		require.Equal(t, first, j.Offered())
		touched, ok := j.Touched()
		require.True(t, ok)
		require.Equal(t, now, touched)
		epoch, recent := j.Recent()
		require.Equal(t, second, epoch)
		require.Equal(t, map[meta.InodeID]uint64{other.Inode: 1, 99: 2}, recent)

		require.NoError(t, j.Close())
		j = open(t, home)
	}
}

func TestChangesOfAName(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	e := metatest.File("f", 1)
	const d = meta.InodeID(9)
	put(t, j, d, at(first, 5), e)
	j.Removed(d, "f", at(first, 5))
	require.True(t, names(t, j, d)["f"].Gone, "removed at the version it was written at")
	put(t, j, d, at(first, 4), e)
	require.True(t, names(t, j, d)["f"].Gone, "an older one that comes late")
	put(t, j, d, at(second, 1), e)
	require.False(t, names(t, j, d)["f"].Gone, "a new epoch is later, whatever its version")
	j.Removed(d, "f", at(first, 9))
	require.False(t, names(t, j, d)["f"].Gone)
	j.Forget(d, []meta.Offer{{Name: "f", Origin: at(second, 2)}})
	require.Len(t, names(t, j, d), 1, "it is another one")
	j.Forget(d, []meta.Offer{{Name: "f", Origin: at(second, 1)}, {Name: "nobody"}})
	require.Empty(t, names(t, j, d))
	e.Version = 12
	require.NoError(t, j.Wrote(d, second, e))
	require.Equal(t, at(second, 12), names(t, j, d)["f"].Origin)

	// Tombstones go after a while; what was written stays.
	j.Removed(d, "g", at(second, 20))
	require.Len(t, names(t, j, d), 2)
	require.NoError(t, j.Clean(time.Now().Add(-time.Minute)))
	require.Len(t, names(t, j, d), 2)
	require.NoError(t, j.Clean(time.Now().Add(time.Minute)))
	require.Len(t, names(t, j, d), 1)
}

// A directory that is renamed keeps what is in it; one that is removed takes
// it along.
func TestDirectories(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	d := dirEntry("old")
	put(t, j, meta.RootDir, at(first, 1), d)
	put(t, j, d.Inode, at(first, 2), metatest.File("f", 1))
	renamed := d
	renamed.Name = "new"
	b, err := meta.MarshalEntry(renamed, nil)
	require.NoError(t, err)
	j.Changed(meta.RootDir, at(first, 3), []meta.Set{{Field: "old"}, {Field: "new", Value: b}})
	require.Equal(t, "new", dirs(t, j)[d.Inode].Way.Name)
	require.Len(t, names(t, j, d.Inode), 1)
	old := d
	old.Version = 1
	j.Way(meta.RootDir, first, old) // late
	require.Equal(t, "new", dirs(t, j)[d.Inode].Way.Name)

	j.Changed(d.Inode, at(first, 4), []meta.Set{{Field: meta.SelfField}})
	j.Changed(meta.RootDir, at(first, 5), []meta.Set{{Field: "new"}})
	require.NotContains(t, dirs(t, j), d.Inode)
	require.Empty(t, names(t, j, d.Inode))
	root := names(t, j, meta.RootDir)
	require.True(t, root["new"].Gone)
	require.True(t, root["old"].Gone)

	put(t, j, 50, at(first, 6), metatest.File("a", 1), metatest.File("b", 1))
	put(t, j, 60, at(first, 7), metatest.File("b", 2))
	j.Moved(50, 60)
	require.Empty(t, names(t, j, 50))
	got := names(t, j, 60)
	require.Len(t, got, 2)
	require.Equal(t, at(first, 7), got["b"].Origin)
}

// TestModel plays random changes against a plain map, over restarts.
func TestModel(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	home := t.TempDir()
	j := open(t, home)
	want := map[meta.InodeID]map[string]meta.Offer{}
	for step := range 1500 {
		id := meta.InodeID(rnd.IntN(4) + 2)
		if want[id] == nil {
			want[id] = map[string]meta.Offer{}
		}
		o := at(first, uint64(step+1))
		e := metatest.File(fmt.Sprint(rnd.IntN(8)), 3)
		switch rnd.IntN(12) {
		default:
			put(t, j, id, o, e)
			e.Version = o.Version
			want[id][e.Name] = meta.Offer{Name: e.Name, Entry: e, Origin: o}
		case 5, 6, 7, 8:
			j.Removed(id, e.Name, o)
			want[id][e.Name] = meta.Offer{Name: e.Name, Gone: true, Origin: o}
		case 9:
			j.Changed(id, o, []meta.Set{{Field: meta.SelfField}})
			clear(want[id])
		case 10:
			j.Forget(id, []meta.Offer{want[id][e.Name]})
			delete(want[id], e.Name)
		case 11:
			if rnd.IntN(8) == 0 {
				require.NoError(t, j.Close())
				j = open(t, home)
			}
		}
		if rnd.IntN(40) == 0 {
			for id, w := range want {
				require.Equal(t, w, names(t, j, id), "step %d", step)
			}
		}
	}
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 300 {
				put(t, j, meta.InodeID(w+2), at(first, uint64(i+1)), metatest.File(fmt.Sprint(i), 1))
				if i%50 == 0 {
					if _, err := j.Dirs(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for w := range 8 {
		require.Len(t, names(t, j, meta.InodeID(w+2)), 300)
	}
}

// TestDamaged: a file that cannot be used is moved aside, and a new one begun.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(b []byte) []byte{
		"garbage":   func(b []byte) []byte { return bytes.Repeat([]byte("garbage!"), len(b)/8) },
		"cut":       func(b []byte) []byte { return b[:len(b)/2] },
		"tiny":      func([]byte) []byte { return []byte("x") },
		"both meta": func(b []byte) []byte { clear(b[:8192]); return b },
		"format":    func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("format\x01"), []byte("format\x09")) },
		"pages":     func(b []byte) []byte { clear(b[8192:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := open(t, dir)
			for i := range 500 {
				put(t, j, 5, at(first, uint64(i+1)), metatest.File(fmt.Sprint(i), 1))
			}
			require.NoError(t, j.Close())
			require.NoError(t, j.Close())
			path := filepath.Join(dir, "journal.db")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, damage(b), 0o600))
			var log bytes.Buffer
			j, err = journal.Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			require.Contains(t, log.String(), "level=ERROR")
			require.FileExists(t, path+".bad")
			require.Empty(t, names(t, j, 5))
			put(t, j, 5, at(first, 1), metatest.File("x", 1))
			require.NoError(t, j.Close())
			require.Len(t, names(t, open(t, dir), 5), 1)
		})
	}
	_, err := journal.Open(filepath.Join(t.TempDir(), "nowhere"), nil)
	require.Error(t, err)
}

// A crash of the machine may lose the last second, and no more.
func TestWrittenSoon(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	j := open(t, home)
	put(t, j, 5, at(first, 1), metatest.File("x", 1))
	copied := filepath.Join(t.TempDir(), "journal.db")
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(filepath.Join(home, "journal.db"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(copied, b, 0o600))
		c, err := journal.Open(filepath.Dir(copied), nil)
		if err != nil { // it was written to while it was copied
			return false
		}
		defer func() { require.NoError(t, c.Close()) }()
		_, ok := c.Name(5, "x")
		return ok
	}, 2*time.Minute, 100*time.Millisecond)
}

func BenchmarkRegister(b *testing.B) {
	for range b.N {
		j, err := journal.Open(b.TempDir(), nil)
		require.NoError(b, err)
		const files, batch = 100_000, 100
		id := meta.NewInodeID()
		made := make([]meta.Set, 0, files)
		for i := range files {
			if i%1000 == 999 {
				id = meta.NewInodeID()
			}
			v, err := meta.MarshalEntry(metatest.File(fmt.Sprintf("file-%06d.safetensors", i), 4096), nil)
			require.NoError(b, err)
			made = append(made, meta.Set{Field: fmt.Sprintf("file-%06d.safetensors", i), Value: v})
		}
		began := time.Now()
		v := uint64(0)
		for sets := range slices.Chunk(made, batch) {
			v++
			j.Changed(id+meta.InodeID(v/10), at(first, v), sets)
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/files, "µs/name-caller")
		require.NoError(b, j.Flush())
		b.ReportMetric(float64(time.Since(began).Microseconds())/files, "µs/name-on-disk")
		began = time.Now()
		all := map[string]bool{}
		ds, err := j.Dirs()
		require.NoError(b, err)
		for _, d := range ds {
			for after := ""; ; {
				page, err := j.Names(d.ID, after, 4000)
				require.NoError(b, err)
				for _, o := range page {
					all[o.Name] = true
				}
				if len(page) < 4000 {
					break
				}
				after = page[len(page)-1].Name
			}
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/files, "µs/name-read")
		require.Len(b, slices.Collect(maps.Keys(all)), files)
		require.NoError(b, j.Close())
	}
}

// What is written in a later epoch of the store counts as later, though this node
// comes to know of what was written in an earlier one after that. N6
func TestEpochsAreInTheOrderOfTheStore(t *testing.T) {
	t.Parallel()
	e := []meta.Epoch{{1}, {2}, {3}}
	j := open(t, t.TempDir())
	require.NoError(t, j.Epochs(e))
	d := meta.Entry{Name: "d", Kind: meta.KindDir, Inode: 7, Mode: 0o755}
	last := func(epoch meta.Epoch, version uint64, parent meta.InodeID) {
		d.Version = version
		j.Way(parent, epoch, d)
	}
	last(e[2], 5, 30)
	last(e[1], 900, 20)
	dirs, err := j.Dirs()
	require.NoError(t, err)
	i := slices.IndexFunc(dirs, func(x journal.Dir) bool { return x.ID == 7 })
	require.GreaterOrEqual(t, i, 0)
	require.Equal(t, meta.InodeID(30), dirs[i].Parent)
}
