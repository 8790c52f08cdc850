package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// expires returns when stat says that a name ends; zero: never.
func (n *node) expires(name string) time.Time {
	n.t.Helper()
	var s struct{ Expires time.Time }
	require.NoError(n.t, json.Unmarshal([]byte(n.must("stat", "--json", n.path(name))), &s))
	return s.Expires
}

// holdsSize reports whether a node holds an object whose file is about so long.
func (n *node) holdsSize(size int64) (yes bool) {
	n.t.Helper()
	err := filepath.WalkDir(filepath.Join(n.cache, "objects"), func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it may go while it is looked at
		}
		info, err := d.Info()
		yes = yes || err == nil && info.Size() >= size && info.Size() < 2*size
		return nil
	})
	require.NoError(n.t, err)
	return yes
}

// gone waits until a name is not there, and requires that it was until its time.
func (n *node) gone(name string, until time.Time) {
	n.t.Helper()
	eventually(n.t, 3*time.Minute, name+" is gone on "+n.name, func() bool {
		_, err := os.Lstat(n.path(name))
		if err != nil {
			require.ErrorIs(n.t, err, os.ErrNotExist)
			require.False(n.t, time.Now().Before(until), "%s was gone %v before its time", name, time.Until(until))
		}
		return err != nil
	})
}

// TestNamesWithATimeToLive (T1, T2, T3): on either kind of store.
func TestNamesWithATimeToLive(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(*testing.T, *cluster){
		"etcd": func(*testing.T, *cluster) {}, "redis": func(t *testing.T, c *cluster) { ownRedis(t, c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--meta-timeout=60s") // nobody stops the store
			own(t, c)
			keyTTL(t, c)
		})
	}
}

func keyTTL(t *testing.T, c *cluster) {
	const ttl = 25 * time.Second // of what has a time: longer than it takes to look at all of it, on a busy machine
	a, b := c.start("a", "--key-ttl", ttl.String()), c.start("b")
	f := b.follow()
	src := c.src("tree")
	require.NoError(t, os.MkdirAll(src+"/deep", 0o755))
	require.NoError(t, os.WriteFile(src+"/deep/f", make([]byte, 2*smallChunk), 0o644))
	require.NoError(t, os.Symlink("f", src+"/deep/link"))

	// Published, and registered: who gives no time gives none, and who gives one
	// has it over the mount's.
	require.NoError(t, os.WriteFile(b.path("lasting"), []byte("b"), 0o644))
	a.must("register", "--key-ttl", "0", src+"/deep/f", a.path("kept"))
	b.must("register", "--key-ttl", "1d", src+"/deep/f", b.path("a day"))
	require.Zero(t, b.expires("lasting"))
	require.Zero(t, b.expires("kept"))
	require.WithinDuration(t, time.Now().Add(24*time.Hour), a.expires("a day"), time.Hour)
	before := time.Now()
	require.NoError(t, os.WriteFile(a.path("short"), make([]byte, smallChunk), 0o644))
	require.NoError(t, os.WriteFile(a.path("again"), []byte("first"), 0o644))
	a.register(src, "tree")
	until := a.expires("short")
	require.WithinRange(t, until, before.Add(ttl), time.Now().Add(ttl))
	require.Equal(t, until, b.expires("short"))
	tree := b.expires("tree/deep/f")
	require.False(t, tree.Before(before.Add(ttl)))
	require.True(t, a.holdsSize(smallChunk))
	open, err := os.Open(b.path("short"))
	require.NoError(t, err)
	defer open.Close()

	// Published again: a new time, or none.
	require.NoError(t, os.WriteFile(b.path("again"), []byte("second"), 0o644))
	require.Zero(t, a.expires("again"))

	for _, n := range []*node{a, b} {
		n.gone("short", until)
		n.gone("tree/deep/f", tree)
		n.gone("tree/deep/link", tree)
		require.Equal(t, "second", must(t, "cat", n.path("again")))
		require.Equal(t, "b", must(t, "cat", n.path("lasting")))
		require.NotContains(t, must(t, "ls", n.path()), "short")
	}
	for _, n := range []*node{a, b} {
		n.gone("tree", tree) // a directory goes when it is empty
		must(t, "cmp", src+"/deep/f", n.path("kept"))
		must(t, "cmp", src+"/deep/f", n.path("a day"))
	}
	eventually(t, eventBound, "the end is an event", func() bool {
		for _, e := range f.events() {
			if e.short() == "unpublish short" {
				return true
			}
		}
		return false
	})

	// The bytes are there for who has them open, and then for nobody.
	got := make([]byte, smallChunk)
	_, err = open.ReadAt(got, 0)
	require.NoError(t, err)
	require.NoError(t, open.Close())
	eventually(t, 3*time.Minute, "the bytes are collected", func() bool {
		a.must("gc")
		return !a.holdsSize(smallChunk)
	})

	// Neither a start nor a store that lost everything brings it back.
	d := c.start("d", "--key-ttl=12s")
	eventually(t, commandLimit, "a name that is there when it is looked at", func() bool {
		require.NoError(t, os.WriteFile(d.path("late"), []byte("x"), 0o644))
		r := d.p2pfs("stat", "--json", d.path("late"))
		var s struct{ Expires time.Time }
		if r.code != 0 || json.Unmarshal(r.out, &s) != nil {
			return false
		}
		until = s.Expires
		return !until.IsZero()
	})
	d.kill()
	b.gone("late", until)
	d.start()
	r := runCmd(t, commandLimit, exec.Command("cat", d.path("late")))
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "No such file")
	require.Equal(t, "a day\nagain\nkept\nlasting\n", must(t, "sh", "-c", "ls "+d.path()+" | grep -v ^follow"))
}
