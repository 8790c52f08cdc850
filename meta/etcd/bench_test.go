package etcd_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/etcd/embedded"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// BenchmarkEmbedded tells what the catalog and the view cost over the bare
// store.
func BenchmarkEmbedded(b *testing.B) {
	srv, err := embedded.Start(b.Context(), embedded.Config{Dir: b.TempDir(), Listen: "127.0.0.1:0"})
	require.NoError(b, err)
	defer srv.Close()
	s, err := etcd.Open(b.Context(), srv.URL(), etcd.Options{})
	require.NoError(b, err)
	defer s.Close()
	c := meta.NewCatalog(s, meta.Options{})
	_, err = c.Join(b.Context(), meta.JoinOptions{Create: true})
	require.NoError(b, err)
	const n = 100_000
	entries := make([]meta.Entry, n)
	for i := range entries {
		entries[i] = metatest.File(fmt.Sprintf("model-%06d.safetensors", i), 1)
	}
	var dir meta.InodeID
	b.Run("link 100,000", func(b *testing.B) {
		for b.Loop() {
			dir, err = c.NewDir(b.Context(), meta.RootDir, meta.Attrs{Mode: 0o755})
			require.NoError(b, err)
			require.NoError(b, c.LinkMany(b.Context(), dir, entries))
		}
	})
	newView := func(b *testing.B) *meta.View {
		v, err := meta.NewView(meta.ViewConfig{Catalog: c})
		require.NoError(b, err)
		b.Cleanup(func() { _ = v.Close() })
		return v
	}
	b.Run("publish by 8 writers in one directory", func(b *testing.B) {
		b.SetParallelism(max(1, 8/runtime.GOMAXPROCS(0)))
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				_, _, err := c.Publish(b.Context(), dir, metatest.File(fmt.Sprintf("new-%x", meta.NewInodeID()), 1), meta.PublishIf{Exclusive: true})
				if err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("rename within a directory", func(b *testing.B) { benchRename(b, c, dir, dir) })
	b.Run("rename across directories", func(b *testing.B) { benchRename(b, c, dir, meta.RootDir) })
	b.Run("list 100,000 cold", func(b *testing.B) {
		for b.Loop() {
			got, err := newView(b).List(b.Context(), dir)
			require.NoError(b, err)
			require.Len(b, got, n)
		}
	})
	b.Run("list 100,000 warm", func(b *testing.B) {
		v := newView(b)
		_, _ = v.List(b.Context(), dir)
		for b.Loop() {
			_, err := v.List(b.Context(), dir)
			require.NoError(b, err)
		}
	})
	key := meta.Key{Slot: meta.Slot(fmt.Sprintf("d/%016x", uint64(dir))), Field: entries[7].Name}
	b.Run("bare get", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Get(b.Context(), key)
			require.NoError(b, err)
		}
	})
	b.Run("confirm", func(b *testing.B) {
		v := newView(b)
		for b.Loop() {
			_, err := v.Confirm(b.Context(), dir, entries[7].Name)
			require.NoError(b, err)
		}
	})
	b.Run("lookup known", func(b *testing.B) {
		v := newView(b)
		_, _ = v.List(b.Context(), dir)
		for b.Loop() {
			_, err := v.Lookup(b.Context(), dir, entries[7].Name)
			require.NoError(b, err)
		}
	})
}

// benchRename moves one file to and fro.
func benchRename(b *testing.B, c *meta.Catalog, from, to meta.InodeID) {
	e, err := c.Link(b.Context(), from, metatest.File("moved", 1))
	require.NoError(b, err)
	here, there := meta.Place{Dir: from, Name: e.Name}, meta.Place{Dir: to, Name: "there"}
	for b.Loop() {
		_, err := c.Rename(b.Context(), here, there, meta.RenameOptions{})
		require.NoError(b, err)
		here, there = there, here
	}
	_, _, err = c.Unlink(b.Context(), here.Dir, here.Name, 0)
	require.NoError(b, err)
}
