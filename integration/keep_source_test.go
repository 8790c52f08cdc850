package integration

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASourceThatIsGoneIsReadFromOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	sum := registered(t, a, "f", 5*smallChunk, 1)
	registered(t, a, "alone", 2*smallChunk, 2)
	short := registered(t, a, "short", 2*smallChunk, 3)
	b.must("get", b.path("f"))
	b.must("get", b.path("short"))
	a.waitHolder("f", "b")
	a.waitHolder("short", "b")
	require.Equal(t, "ok", a.copies("f").Source)
	require.NoError(t, os.Remove(c.src("f")))
	require.NoError(t, os.Remove(c.src("alone")))
	require.NoError(t, os.Truncate(c.src("short"), 100))
	require.Equal(t, "gone", a.copies("f").Source)
	require.Equal(t, "changed", a.copies("short").Source)
	require.Contains(t, a.must("ls", "-l", a.mnt), "gone")
	require.Equal(t, sum, digest(t, a.path("f")))
	require.Equal(t, short, digest(t, a.path("short")))
	began := time.Now()
	r := run(t, "cat", a.path("alone"))
	requireEIO(t, r, nil)
	require.Less(t, time.Since(began), time.Minute)
	require.Contains(t, string(content(t, a.logPath())), "no other node provides it", "nobody has it, and that was known: nobody was waited for")
	eventually(t, time.Minute, "b alone holds it all", func() bool { // it may not answer at once
		all := a.copies("f").Providers
		return len(all) > 0 && !slices.ContainsFunc(all, func(p provided) bool { return p.Complete != (p.Name == "b") })
	})
}

func TestGetOfWhatTheCacheCannotHold(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b", "--cache-size=2M")
	sum := registered(t, a, "big", 8<<20, 1)
	require.NoError(t, os.MkdirAll(c.src("many"), 0o755))
	for i := range 4 {
		writeFile(t, c.src("many/"+itoa(i)), 700<<10, uint64(i))
	}
	a.register(c.src("many"), "many")
	for _, name := range []string{"big", "many"} {
		r := b.p2pfs("get", b.path(name))
		require.NotZero(t, r.code)
		require.Contains(t, r.err, "--cache-size")
		require.Zero(t, b.received(), "bytes travelled before it was refused")
	}
	out := c.src("out")
	b.must("get", b.path("big"), "-o", out)
	require.Equal(t, sum, digest(t, out))
	eventually(t, 2*time.Minute, "room for a file that fits", func() bool { return b.p2pfs("get", b.path("many/1")).code == 0 })
}

func TestPeersInAnOutage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	st := newStore(filepath.Join(c.dir, "etcd"))
	require.NoError(t, st.start())
	t.Cleanup(st.stop)
	c.url = st.url() + "/x"
	a := c.start("a")
	c.start("b")
	type peers struct {
		Peers []struct {
			Name string `json:"name"`
			Seen string `json:"seen"`
		} `json:"peers"`
		Note string `json:"note"`
	}
	var up, down peers
	eventually(t, 2*time.Minute, "both have written that they run", func() bool {
		up = peers{}
		a.json(&up, "peers", "--all")
		return len(up.Peers) == 2 && up.Peers[0].Seen != "" && up.Peers[1].Seen != ""
	})
	require.Empty(t, up.Note)
	st.stop()
	a.json(&down, "peers")
	require.Len(t, down.Peers, 2)
	require.NotEmpty(t, down.Note)
}
