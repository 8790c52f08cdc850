package cache

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// sourceFile writes an object's content to a file and returns what registers
// it.
func sourceFile(t testing.TB, o chunk.Object, dir string) Source {
	t.Helper()
	path := filepath.Join(dir, o.ID.Short())
	require.NoError(t, os.WriteFile(path, wholeContent(o), 0o644))
	return Source{Object: o, Path: path, ID: identityAt(t, path)}
}

func identityAt(t testing.TB, path string) Identity {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	id, err := IdentityOf(f)
	require.NoError(t, err)
	return id
}

// registered returns a cache with one registered file.
func registered(t testing.TB, cfg Config, o chunk.Object) (*Cache, Source) {
	t.Helper()
	s := sourceFile(t, o, t.TempDir())
	c := openCache(t, cfg)
	require.NoError(t, c.RegisterInPlace(t.Context(), []Source{s}))
	return c, s
}

type boundSums struct {
	mu   sync.Mutex
	sums map[int]uint32
	n    int
}

func (b *boundSums) bound(_ chunk.Object, block int, sum uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sums == nil {
		b.sums = make(map[int]uint32)
	}
	b.sums[block] = sum
	b.n++
}

func (b *boundSums) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

func TestServeInPlace(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	var told boundSums
	cfg.Bound = told.bound
	o := object(70*bs + 3)
	c, s := registered(t, cfg, o)
	require.Equal(t, 1, c.Stats().InPlace)
	i, held, ok := c.Peek(o.ID)
	require.True(t, ok)
	require.Equal(t, Info{Object: o, Complete: true, InPlace: true, Keeper: true, Path: s.Path, LocalBytes: o.Size}, i)
	require.True(t, held.Complete() && held.Have().Full() && held.Has(70) && !held.Has(71))
	_, ok = held.Sum(0)
	require.False(t, ok, "not bound yet")
	for range 2 {
		for _, b := range rand.Perm(o.Blocks()) {
			blk, err := c.Block(t.Context(), o.ID, b)
			require.NoError(t, err)
			require.Equal(t, chunk.Sum(content(o, b)), blk.Sum)
			require.Equal(t, content(o, b), readBlock(t, blk))
		}
	}
	require.Equal(t, o.Blocks(), told.count(), "each block is bound once")
	sum, ok := held.Sum(3)
	require.True(t, ok)
	require.Equal(t, told.sums[3], sum)
	for _, b := range []int{-1, o.Blocks()} {
		_, err := c.Block(t.Context(), o.ID, b)
		require.ErrorIs(t, err, chunk.ErrNotHeld)
	}
	require.NoError(t, c.Recheck(t.Context(), o.ID, 3))
	_, err := c.Drop(t.Context(), o.ID)
	require.ErrorIs(t, err, ErrKept)
	require.NoError(t, c.Close())
	_, err = c.Block(t.Context(), o.ID, 0)
	require.ErrorIs(t, err, chunk.ErrClosed)

	// Bound sums outlive the process.
	c = openCache(t, cfg)
	_, held, ok = c.Peek(o.ID)
	require.True(t, ok)
	for b := range o.Blocks() {
		sum, ok := held.Sum(b)
		require.True(t, ok)
		require.Equal(t, told.sums[b], sum)
	}
	blk, err := c.Block(t.Context(), o.ID, 70)
	require.NoError(t, err)
	require.Equal(t, content(o, 70), readBlock(t, blk))
	require.Equal(t, o.Blocks(), told.count())
	sets, err := c.Sets(t.Context())
	require.NoError(t, err)
	require.Equal(t, []SetInfo{{Set: o.Set, Keeper: true, Complete: true}}, sets)
}

func TestOpenInPlace(t *testing.T) {
	t.Parallel()
	o := object(3 * bs)
	c, s := registered(t, config(t), o)
	f := openFile(t, c, o)
	require.True(t, f.Complete())
	require.True(t, f.Have().Full())
	a, err := f.Reader().Stat()
	require.NoError(t, err)
	b, err := os.Stat(s.Path)
	require.NoError(t, err)
	require.True(t, os.SameFile(a, b))
	require.ErrorIs(t, f.Put(0, content(o, 0), 0), ErrKept)
	require.ErrorIs(t, f.PutZero(chunk.NewBitmap(3)), ErrKept)
	_, err = f.Reader().WriteAt([]byte("x"), 0)
	require.Error(t, err, "opened for reading only")

	// Edits show on the file's own node, replacement too.
	require.NoError(t, os.WriteFile(s.Path, []byte("edited"), 0o644))
	var got [6]byte
	_, err = f.Reader().ReadAt(got[:], 0)
	require.NoError(t, err)
	require.Equal(t, "edited", string(got[:]))
	g := openFile(t, c, o)
	_, err = g.Reader().ReadAt(got[:], 0)
	require.NoError(t, err)

	require.NoError(t, os.Remove(s.Path))
	_, err = c.Open(t.Context(), o)
	require.ErrorIs(t, err, chunk.ErrSourceChanged)
	require.ErrorContains(t, err, s.Path)
	require.NoError(t, os.Mkdir(s.Path, 0o755))
	_, err = c.Open(t.Context(), o)
	require.ErrorIs(t, err, chunk.ErrSourceChanged)
	require.NoError(t, os.Remove(s.Path))
	require.NoError(t, syscall.Mkfifo(s.Path, 0o644))
	_, err = c.Open(t.Context(), o)
	require.ErrorIs(t, err, chunk.ErrSourceChanged, "a pipe does not hang us")
}

// Every way a registered file can stop being itself, seen by a peer that asks
// for a bound block and for one that is not.
func TestSourceChanges(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, path string)
		want   string // in the message; "": still served
	}{
		{"edited", func(t *testing.T, path string) {
			writeAt(t, path, 3*bs, "edit")
		}, "modified"},
		{"truncated", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 2*bs)) }, "size"},
		{"grown", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 40*bs)) }, "size"},
		{"deleted", func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, "gone"},
		{"moved away", func(t *testing.T, path string) { require.NoError(t, os.Rename(path, path+".old")) }, "gone"},
		{"replaced", func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".new", b, 0o644))
			st, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Chtimes(path+".new", st.ModTime(), st.ModTime()))
			require.NoError(t, os.Rename(path+".new", path))
		}, "another file"},
		{"a link in its place", func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".old"))
			require.NoError(t, os.Symlink(path+".old", path))
		}, ""},
		{"chmod", func(t *testing.T, path string) { require.NoError(t, os.Chmod(path, 0o600)) }, ""},
		{"moved and back", func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".old"))
			require.NoError(t, os.Rename(path+".old", path))
		}, ""},
		{"another name", func(t *testing.T, path string) { require.NoError(t, os.Link(path, path+".too")) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var told boundSums
			cfg := config(t)
			cfg.Bound = told.bound
			o := object(9 * bs)
			c, s := registered(t, cfg, o)
			blk, err := c.Block(t.Context(), o.ID, 1)
			require.NoError(t, err)
			readBlock(t, blk)
			under, err := c.Block(t.Context(), o.ID, 1)
			require.NoError(t, err)
			tc.change(t, s.Path)
			released := under.Release()
			if tc.name == "a link in its place" {
				for _, b := range []int{1, 2} {
					_, err := c.Block(t.Context(), o.ID, b)
					require.ErrorIs(t, err, chunk.ErrSourceChanged)
				}
				return
			}
			for _, b := range []int{1, 2} {
				blk, err := c.Block(t.Context(), o.ID, b)
				if tc.want == "" {
					require.NoError(t, err)
					require.Equal(t, content(o, b), readBlock(t, blk))
					continue
				}
				require.ErrorIs(t, err, chunk.ErrSourceChanged)
				require.ErrorContains(t, err, s.Path)
				require.ErrorContains(t, err, tc.want)
			}
			if tc.want == "" {
				require.NoError(t, released)
				require.Equal(t, 2, told.count(), "verified again is not bound again")
				return
			}
			require.Equal(t, 1, told.count())
			switch tc.name {
			case "edited", "truncated", "grown":
				require.ErrorIs(t, released, chunk.ErrSourceChanged, "who sent it meanwhile is told")
			default:
				require.NoError(t, released, "the bytes sent were the registered ones")
			}
			c.places.closeOld(time.Now().Add(time.Hour))
			require.Empty(t, c.places.live, "a file that went is not kept open")
		})
	}
}

func writeAt(t testing.TB, path string, off int64, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(text), off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// Many ask for the same blocks at once: each is read and told once.
func TestFirstServeIsShared(t *testing.T) {
	t.Parallel()
	var told boundSums
	cfg := config(t)
	cfg.Bound = told.bound
	o := object(40*bs + 1)
	c, _ := registered(t, cfg, o)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for b := range o.Blocks() {
				blk, err := c.Block(t.Context(), o.ID, b)
				if err != nil {
					t.Error(err)
					return
				}
				if blk.Sum != chunk.Sum(content(o, b)) {
					t.Errorf("sum of block %d", b)
				}
				if err := blk.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, o.Blocks(), told.count())
	p, err := c.places.get(o.ID)
	require.NoError(t, err)
	require.Empty(t, p.flights)
	c.places.release(p)
	require.Zero(t, p.refs)
}

// Attributes that change all the time, and a reader in between.
func TestAttributesUnderChange(t *testing.T) {
	t.Parallel()
	o := object(20 * bs)
	c, s := registered(t, config(t), o)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				os.Chmod(s.Path, os.FileMode(0o600+i%2*0o44))
			}
		}
	})
	served := 0
	for n := range 200 {
		b := n % o.Blocks()
		blk, err := c.Block(t.Context(), o.ID, b)
		if err != nil {
			require.ErrorIs(t, err, chunk.ErrSourceChanged)
			continue
		}
		served++
		require.Equal(t, chunk.Sum(content(o, b)), blk.Sum)
		if err := blk.Release(); err != nil {
			require.ErrorIs(t, err, chunk.ErrSourceChanged)
		}
	}
	close(stop)
	wg.Wait()
	blk, err := c.Block(t.Context(), o.ID, 1)
	require.NoError(t, err)
	require.Equal(t, content(o, 1), readBlock(t, blk))
	t.Logf("%d of 200 served", served)
}

func TestHoles(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	var told boundSums
	cfg.Bound = told.bound
	o := object(12*bs + 5)
	path := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(o.Size))
	_, err = f.WriteAt(content(o, 4), 4*bs)
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, bs), 6*bs) // zeros that take room
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1}, 9*bs-1) // the last byte only
	require.NoError(t, err)
	require.NoError(t, f.Close())
	zero := chunk.NewBitmap(o.Blocks())
	for _, b := range []int{0, 1, 2} {
		zero.Set(b)
	}
	c := openCache(t, cfg)
	require.NoError(t, c.RegisterInPlace(t.Context(), []Source{{Object: o, Path: path, ID: identityAt(t, path), Zero: zero}}))
	for range 2 {
		for b := range o.Blocks() {
			blk, err := c.Block(t.Context(), o.ID, b)
			require.NoError(t, err)
			require.Equal(t, b != 4 && b != 8, blk.Zero, "block %d", b)
			sum := blk.Sum
			require.Equal(t, sum, chunk.Sum(readBlock(t, blk)))
		}
		require.Equal(t, o.Blocks()-3, told.count(), "the registered zeros are bound already")
		require.NoError(t, os.Chmod(path, 0o600)) // all is verified again
	}
	writeAt(t, path, bs, "x")
	_, err = c.Block(t.Context(), o.ID, 1)
	require.ErrorIs(t, err, chunk.ErrSourceChanged)
}

// The file of sums is only a shortcut: broken, it is begun anew.
func TestBrokenSums(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(t *testing.T, path string){
		"torn":    func(t *testing.T, path string) { corrupt(t, path, sectorSize+30, 8) },
		"short":   func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 100)) },
		"empty":   func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"missing": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"zeros":   func(t *testing.T, path string) { corrupt(t, path, 0, 2*sectorSize) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Log = nil
			var told boundSums
			cfg.Bound = told.bound
			o := object(5 * bs)
			c, _ := registered(t, cfg, o)
			blk, err := c.Block(t.Context(), o.ID, 1)
			require.NoError(t, err)
			readBlock(t, blk)
			require.NoError(t, c.Close())
			breakIt(t, c.roots[0].path(o.ID, ".sums"))
			c = openCache(t, cfg)
			blk, err = c.Block(t.Context(), o.ID, 1)
			require.NoError(t, err)
			require.Equal(t, content(o, 1), readBlock(t, blk))
			require.Equal(t, 2, told.count())
		})
	}
}

func TestIdleSourcesAreClosed(t *testing.T) {
	t.Parallel()
	clk := newClock()
	cfg := config(t)
	cfg.Now = clk.now
	cfg.OpenFiles = 2
	c := openCache(t, cfg)
	var sources []Source
	for range 5 {
		sources = append(sources, sourceFile(t, object(bs), t.TempDir()))
	}
	require.NoError(t, c.RegisterInPlace(t.Context(), sources))
	for _, s := range sources {
		blk, err := c.Block(t.Context(), s.Object.ID, 0)
		require.NoError(t, err)
		readBlock(t, blk)
	}
	require.Len(t, c.places.live, 2)
	clk.add(2 * idleTime)
	c.tend(t.Context())
	require.Empty(t, c.places.live)
}

func TestBrokenTable(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	o := object(bs)
	c, _ := registered(t, cfg, o)
	require.NoError(t, c.places.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketObjects).Put(o.ID[:], []byte("junk"))
	}))
	_, err := c.Block(t.Context(), o.ID, 0)
	require.ErrorIs(t, err, errRecord)
	_, err = c.Open(t.Context(), o)
	require.ErrorIs(t, err, errRecord)
	require.NoError(t, c.Close())
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Roots[0], dbName), []byte("junk that is no database"), 0o600))
	_, err = Open(cfg)
	require.ErrorContains(t, err, dbName)
}

func FuzzRecord(f *testing.F) {
	o := object(9 * bs)
	zero := chunk.NewBitmap(9)
	zero.Set(8)
	f.Add(record{obj: o, path: "/a\xff\n", id: Identity{Size: 1, MtimeNs: -2, CtimeNs: 3, Ino: 4, Dev: 5}, zero: zero, damaged: "x", note: "n\x00"}.encode())
	f.Add(record{obj: o, path: "/a"}.encode())
	f.Add([]byte{recordVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			require.ErrorIs(t, err, errRecord)
			// Past the checksum there are decisions to test, too.
			if len(b) <= recordHead {
				return
			}
			r = record{obj: o}
			if err := r.decodeTail(b[recordHead:], recordParts); err != nil {
				require.ErrorIs(t, err, errRecord)
			}
			return
		}
		again, err := decodeRecord(r.encode())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}
