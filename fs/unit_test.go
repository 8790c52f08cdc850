package fs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

func TestCheckMountpoint(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, dir := range []string{"mnt/sub", "cache/sub", "mnt2"} {
		require.NoError(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	require.NoError(t, os.Symlink(filepath.Join(base, "mnt"), filepath.Join(base, "link")))
	for _, c := range []struct {
		mnt, cache string
		want       string
	}{
		{"mnt", "cache", ""},
		{"mnt", "mnt2", ""},
		{"mnt2", "mnt", ""},
		{"mnt", "mnt", "lies in the mountpoint"},
		{"mnt", "mnt/sub", "lies in the mountpoint"},
		{"mnt", "mnt/not/yet", "lies in the mountpoint"},
		{"mnt", "link/not/yet", "lies in the mountpoint"},
		{"link", "mnt/sub", "lies in the mountpoint"},
		{"cache/sub", "cache", "lies in the cache directory"},
		{"cache/sub", "cache/sub/../", "lies in the cache directory"},
		{"mnt", "/", "lies in the cache directory"},
		{"mnt", "mnt/../cache", ""},
	} {
		cache := c.cache
		if cache != "/" {
			cache = base + "/" + cache
		}
		err := CheckMountpoint(base+"/"+c.mnt, []string{base + "/cache2", cache})
		if c.want == "" {
			require.NoError(t, err, c)
		} else {
			require.ErrorContains(t, err, c.want, c)
		}
	}
}

func TestSplitNs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ns   int64
		sec  int64
		nsec uint32
	}{{0, 0, 0}, {1, 0, 1}, {-1, -1, 999_999_999}, {1_500_000_000, 1, 500_000_000}, {-2_000_000_000, -2, 0}} {
		sec, nsec := splitNs(c.ns)
		require.Equal(t, c.sec, int64(sec), c.ns)
		require.Equal(t, c.nsec, nsec, c.ns)
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	var l limiter
	now := time.Unix(1000, 0)
	shown := 0
	for range 100 {
		if _, ok := l.allow(now); ok {
			shown++
		}
	}
	require.Equal(t, complaintBurst, shown)
	skipped, ok := l.allow(now.Add(complaintEvery))
	require.True(t, ok)
	require.Equal(t, 100-complaintBurst, skipped)
	skipped, ok = l.allow(now.Add(complaintEvery))
	require.True(t, ok)
	require.Zero(t, skipped)
}

func TestNotifierJoinsEqualNotices(t *testing.T) {
	t.Parallel()
	q := newNotifier()
	for range 1000 {
		q.push(notice{kind: noticeName, dir: 1, name: "a"})
		q.push(notice{kind: noticeDir, dir: 1})
	}
	require.Equal(t, 2, q.pending())
	n, ok := q.pop()
	require.True(t, ok)
	require.Equal(t, "a", n.name)
	q.push(n) // again while it is looked into: it may have changed since
	require.Equal(t, 3, q.pending())
	for range 2 {
		_, ok = q.pop()
		require.True(t, ok)
	}
	_, ok = q.pop()
	require.False(t, ok)
	require.Zero(t, q.pending())
}

func newTestTable() *table {
	t := &table{}
	t.init(rootEntry(time.Unix(0, 0)))
	return t
}

func (t *table) lookup(dir meta.InodeID, e meta.Entry) *inode {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.enter(dir, &e)
}

func fileEntry(name string, id meta.InodeID) meta.Entry {
	return meta.Entry{Name: name, Kind: meta.KindFile, Inode: id, Size: 10, Object: chunk.Object{ID: chunk.NewObjectID(), Size: 10}}
}

func TestTableCountsLookups(t *testing.T) {
	t.Parallel()
	tab := newTestTable()
	e := fileEntry("f", 7)
	n := tab.lookup(meta.RootDir, e)
	require.Same(t, n, tab.lookup(meta.RootDir, e))
	tab.forget(n.node, 1)
	require.Same(t, n, tab.get(n.node))
	tab.forget(n.node, 5) // more than there are
	require.Nil(t, tab.get(n.node))
	require.Nil(t, tab.child(meta.RootDir, "f"))
	tab.forget(n.node, 1)
	tab.forget(rootNode, 99)
	require.NotNil(t, tab.get(rootNode))
	require.Equal(t, 1, tab.inodes())
	require.Empty(t, tab.kids)
	require.NotEqual(t, n.node, tab.lookup(meta.RootDir, e).node, "node ids are not used twice")
}

func TestTableReplacesAndMoves(t *testing.T) {
	t.Parallel()
	tab := newTestTable()
	first := tab.lookup(meta.RootDir, fileEntry("f", 7))
	second := tab.lookup(meta.RootDir, fileEntry("f", 7)) // another object
	require.NotEqual(t, first.node, second.node)
	require.Equal(t, first.gen+1, second.gen)
	tab.forget(first.node, 1)
	require.Same(t, second, tab.child(meta.RootDir, "f"))

	dir := meta.Entry{Name: "d", Kind: meta.KindDir, Inode: 9}
	d := tab.lookup(meta.RootDir, dir)
	dir.Name, dir.Size, dir.MtimeNs = "e", 3, 4
	require.Same(t, d, tab.lookup(meta.RootDir, dir), "a directory keeps its inode when it moves")
	require.Nil(t, tab.child(meta.RootDir, "d"))
	sub := tab.lookup(9, fileEntry("f", 8))
	tab.forget(d.node, 2) // before what is in it, as a batch may
	require.Zero(t, tab.dirNode(9))
	tab.forget(sub.node, 1)
	tab.forget(second.node, 1)
	require.Equal(t, 1, tab.inodes())
	require.Empty(t, tab.kids)
}

func TestTableDoubts(t *testing.T) {
	t.Parallel()
	tab := newTestTable()
	now := time.Unix(1000, 0)
	asked := func(name string, now time.Time) bool {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		ok := tab.doubted(meta.RootDir, name, now)
		return ok
	}
	for i := range 2 * doubtsKept {
		n := tab.lookup(meta.RootDir, fileEntry("f"+itoa(i), 7))
		tab.mistrust(n, 1, intent{}, now, now)
	}
	require.True(t, asked("f0", now))
	later := now.Add(2 * doubtLasts)
	require.False(t, asked("f0", later))
	tab.mistrust(tab.child(meta.RootDir, "f1"), 1, intent{}, later, later)
	require.Len(t, tab.doubts, 1, "old ones do not pile up")
}

// A thread whose open was answered by ESTALE takes what was confirmed since, once.
func TestTableConfirmsForEachThread(t *testing.T) {
	t.Parallel()
	tab := newTestTable()
	t0 := time.Unix(1000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	n := tab.lookup(meta.RootDir, fileEntry("f", 7))
	tab.mistrust(n, 1, intent{}, at(10), at(10))
	tab.mistrust(n, 2, intent{}, at(20), at(20))
	tab.mistrust(n, 0, intent{}, at(20), at(20))
	n = tab.lookup(meta.RootDir, fileEntry("f", 8))
	n.confirmed, n.answered = at(15), at(25)
	require.False(t, tab.takeConfirmed(n, 2, at(30)), "confirmed before its open came")
	require.True(t, tab.suffices(n, 1, at(30)))
	require.True(t, tab.takeConfirmed(n, 1, at(30)))
	require.False(t, tab.takeConfirmed(n, 1, at(30)), "its next open")
	require.False(t, tab.takeConfirmed(n, 3, at(30)), "never told")
	require.False(t, tab.takeConfirmed(n, 0, at(30)), "nobody knows who that is")
	tab.mistrust(n, 1, intent{}, at(40), at(40))
	n.confirmed, n.answered = at(50), at(50)
	require.False(t, tab.takeConfirmed(n, 1, at(50).Add(toldLasts)), "long after")
}

// A store that takes its time for each answer costs no thread its second walk.
func TestTableDoubtsLastHoweverSlowTheStoreIs(t *testing.T) {
	t.Parallel()
	tab := newTestTable()
	t0 := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	n := tab.lookup(meta.RootDir, fileEntry("f", 7))
	const slow = 2 * doubtLasts
	tab.mistrust(n, 1, intent{write: true}, at(0), at(slow))
	tab.mu.Lock()
	doubted, wanted := tab.doubted(meta.RootDir, "f", at(slow+1)), tab.wanted(meta.RootDir, "f", at(slow+1))
	tab.mu.Unlock()
	require.True(t, doubted)
	require.True(t, wanted)
	n = tab.lookup(meta.RootDir, fileEntry("f", 8))
	n.confirmed, n.answered = at(slow+1), at(2*slow)
	require.True(t, tab.takeConfirmed(n, 1, at(2*slow+1)))

	way := meta.Way{{Dir: meta.RootDir, Name: "d", Inode: 9}}
	require.False(t, tab.mistrustWay(way, 2, at(0), at(slow)))
	require.True(t, tab.mistrustWay(way, 2, at(slow+1), at(2*slow)), "told already")
	require.False(t, tab.mistrustWay(way, 2, at(slow+toldLasts), at(3*slow)), "another call")
}

func TestTableNatures(t *testing.T) {
	t.Parallel()
	tab := newTestTable()
	n := tab.lookup(meta.RootDir, fileEntry("f", 7))
	id := n.entry.Object.ID
	_, ok, err := tab.join(n, false)
	require.NoError(t, err)
	require.False(t, ok)
	_, first, _, keep := tab.settle(n, way{nature: natureIncomplete, entry: n.entry})
	require.True(t, first && keep)
	_, first, _, _ = tab.settle(n, way{nature: naturePassthrough, entry: n.entry})
	require.False(t, first, "another open came first")
	f, ok, err := tab.join(n, false)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, natureIncomplete, f.nature)
	require.Equal(t, []uint64{n.node}, tab.complete(id))

	s, _, _ := tab.advance(n.node, 100)
	require.Equal(t, stepNone, s, "small and open")
	s, _, _ = tab.advance(n.node, 1)
	require.Equal(t, stepMove, s, "large and open")
	s, _, _ = tab.advance(n.node, 1)
	require.Equal(t, stepNone, s, "moved already")
	_, last := tab.leave(n, nil)
	require.False(t, last)
	_, last = tab.leave(n, nil)
	require.True(t, last)

	_, first, drop, _ := tab.settle(n, way{nature: naturePassthrough, entry: n.entry})
	require.True(t, first && drop, "pages read before have no use")
	require.Empty(t, tab.complete(id))
	require.Empty(t, tab.objects)
	tab.leave(n, nil)

	one, two := stamp{ino: 1}, stamp{ino: 2}
	for _, c := range []struct {
		s    stamp
		keep bool
	}{{one, true}, {one, true}, {two, false}, {two, true}} {
		_, _, _, keep = tab.settle(n, way{nature: natureLocal, stamp: c.s, entry: n.entry})
		require.Equal(t, c.keep, keep)
		tab.leave(n, nil)
	}
}

func TestErrorsOfPassthrough(t *testing.T) {
	t.Parallel()
	p := newTestPassthrough()
	p.learn("/x", 1, syscall.EBADF)
	require.False(t, p.refused(1), "one file only")
	p.learn("/x", 1, syscall.ELOOP)
	require.True(t, p.refused(1))
	require.False(t, p.refused(2))
	p.learn("/x", 2, syscall.EPERM)
	require.True(t, p.refused(2))
	state, reason := p.status()
	require.Equal(t, PassthroughUnavailable, state)
	require.Contains(t, reason, "CAP_SYS_ADMIN")
}
