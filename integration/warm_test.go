package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// warmed is the JSON of p2pfs warm.
type warmed struct {
	Files    int64 `json:"files"`
	Bytes    int64 `json:"bytes"`
	Failed   int64 `json:"failed"`
	Failures []struct {
		Path  string `json:"path"`
		Error string `json:"error"`
	} `json:"failures"`
}

// model registers files of some blocks each on a node and returns their
// digests by name.
func model(t *testing.T, n *node, dir string, names ...string) map[string]string {
	t.Helper()
	want := map[string]string{}
	for i, name := range names {
		want[name] = writeFile(t, n.c.src(filepath.Join(dir, name)), int64(2+i)*smallChunk+17, uint64(100+i))
	}
	n.register(n.c.src(dir), dir)
	return want
}

func (n *node) local(path string) bool {
	s := n.stat(path)
	return s.LocalBytes == s.Size
}

func TestWarmBringsWhatItIsToldAndGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	want := model(t, a, "m", "s1", "s2", "sub/s3")
	writeFile(t, c.src("gone/f"), 2*smallChunk, 7)
	a.register(c.src("gone"), "gone")
	require.NoError(t, os.Remove(c.src("gone/f"))) // nobody has it any more
	save := filepath.Join(c.dir, "saved")

	r := b.p2pfs("warm", "--json", "--verify", "--save-dir", save, b.path("gone"), b.path("m"), b.path("not", "there"))
	require.Equal(t, 1, r.code, "%s", r)
	var w warmed
	require.NoError(t, json.Unmarshal(r.out, &w), "%s", r)
	require.EqualValues(t, 3, w.Files)
	require.Len(t, w.Failures, 2, "%s", r)
	for name, sum := range want {
		require.True(t, b.local("m/"+name), name)
		require.Equal(t, sum, digest(t, filepath.Join(save, "m", name)), name)
	}
	left, err := filepath.Glob(filepath.Join(save, "*", ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoFileExists(t, filepath.Join(save, "gone", "f"))

	r = b.p2pfs("warm", b.path("nothing"))
	require.Equal(t, 3, r.code, "%s", r)
	require.Contains(t, r.err, "nothing")
}

func TestWarmSharesAListAmongNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	names := []string{"1", "2", "3", "4", "5"}
	model(t, a, "m", names...)
	var b [2]*node
	for rank := range b {
		b[rank] = c.start(fmt.Sprint("b", rank))
		b[rank].must("warm", "--rank", itoa(rank), "--world-size", "2", b[rank].path("m"))
	}
	for i, name := range names {
		for rank, n := range b {
			require.Equal(t, i%2 == rank, n.local("m/"+name), "file %s on rank %d", name, rank)
		}
	}
}

func TestWarmVerifiesWhatLiesOnTheDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	want := model(t, a, "m", "f")
	b.must("warm", b.path("m"))
	data, err := filepath.Glob(filepath.Join(b.cache, "objects", "*", "*.data"))
	require.NoError(t, err)
	require.Len(t, data, 1)
	require.NoError(t, os.Chmod(data[0], 0o600))
	f, err := os.OpenFile(data[0], os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("rot"), smallBlock+5)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	before := b.received()
	b.must("warm", b.path("m"))
	require.Equal(t, before, b.received(), "all of it is here, as far as is known")
	b.must("warm", "--verify", b.path("m"))
	require.Greater(t, b.received(), before, "it came again")
	require.Equal(t, want["f"], digest(t, b.path("m", "f")))
}

func TestAPinnedFileStaysUntilItIsUnpinned(t *testing.T) {
	t.Parallel()
	const size = 4 * smallChunk
	c := newCluster(t)
	a := c.start("a")
	for i := range 8 {
		writeFile(t, c.src(fmt.Sprintf("m/%d", i)), size, uint64(i))
	}
	a.register(c.src("m"), "m")
	b := c.start("b", "--cache-size", itoa(3*size))
	pinned := func(name string) bool {
		var s struct {
			Pinned *bool `json:"pinned"`
		}
		b.json(&s, "stat", b.path("m", name))
		require.NotNil(t, s.Pinned)
		return *s.Pinned
	}
	others := func() {
		t.Helper()
		for i := 2; i < 8; i++ {
			must(t, "cat", b.path("m", itoa(i)))
		}
	}
	b.must("warm", "--pin", b.path("m", "0"))
	others()
	require.True(t, pinned("0"))
	require.False(t, pinned("1"))
	require.True(t, b.local("m/0"))
	require.NotZero(t, b.p2pfs("drop", b.path("m", "0")).code)

	b.stop()
	b.start()
	require.True(t, pinned("0"))
	others()
	require.True(t, b.local("m/0"), "over a restart")

	b.must("unpin", b.path("m"))
	require.False(t, pinned("0"))
	eventually(t, commandLimit, "it is like any other", func() bool {
		others()
		return !b.local("m/0")
	})

	// A pin ends with the last name of the file.
	b.must("pin", b.path("m", "1"))
	a.must("unregister", a.path("m", "1"))
	eventually(t, commandLimit, "the pin is gone", func() bool {
		b.must("gc")
		raw, err := os.ReadFile(filepath.Join(b.cache, "pins"))
		require.NoError(t, err)
		return string(raw) == `{"version":1,"pins":[]}`
	})
}

func TestTheOtherShardsOfAModelComeAhead(t *testing.T) {
	t.Parallel()
	names := []string{"m-1.safetensors", "m-2.safetensors", "m-3.safetensors", "m-4.safetensors", "other.txt"}
	c := newCluster(t)
	a := c.start("a")
	model(t, a, "m", names...)
	b, off := c.start("b"), c.start("off", "--prefetch=off")
	for _, n := range []*node{b, off} {
		must(t, "cat", n.path("m", names[0]))
	}
	require.False(t, b.local("m/"+names[2]), "one file is no model yet")
	for _, n := range []*node{b, off} {
		must(t, "cat", n.path("m", names[2]))
	}
	for _, name := range names[:4] {
		b.waitLocal("m/" + name)
	}
	require.False(t, b.local("m/"+names[4]), "it is no shard")
	require.False(t, off.local("m/"+names[1]))
}

func TestTraceTellsWhoSentWhat(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	model(t, a, "m", "f")
	b := c.start("b")
	must(t, "cat", b.path("m", "f"))
	var tr struct {
		Requests []struct {
			Block   int     `json:"block"`
			Name    string  `json:"name"`
			Time    string  `json:"time"`
			Seconds float64 `json:"seconds"`
			Bytes   int64   `json:"bytes"`
		} `json:"requests"`
	}
	blocks, total := map[int]int64{}, int64(0)
	eventually(t, commandLimit, "all requests have ended", func() bool {
		tr.Requests = nil
		b.json(&tr, "trace", b.path("m", "f"))
		clear(blocks)
		total = 0
		for _, r := range tr.Requests {
			total += r.Bytes
			if r.Bytes > 0 { // else it was given up, and the block asked for again
				blocks[r.Block] = r.Bytes
			}
		}
		return len(blocks) >= 7
	})
	for _, r := range tr.Requests {
		require.Equal(t, "a", r.Name)
		when, err := time.Parse(time.RFC3339Nano, r.Time)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), when, time.Hour)
	}
	require.Len(t, blocks, 7)
	require.EqualValues(t, smallBlock, blocks[0])
	require.EqualValues(t, 17, blocks[6])

	type peer struct {
		Name     string `json:"name"`
		Received int64  `json:"received_bytes"`
		Link     *struct {
			Rate   float64 `json:"rate"`
			Weight float64 `json:"weight"`
			Blocks int64   `json:"blocks"`
		} `json:"link"`
	}
	var from peer
	eventually(t, commandLimit, "the last block is counted", func() bool { // after it was traced
		var p struct {
			Peers []peer `json:"peers"`
		}
		b.json(&p, "peers")
		i := slices.IndexFunc(p.Peers, func(p peer) bool { return p.Name == "a" && p.Link != nil })
		if i >= 0 {
			from = p.Peers[i]
		}
		return i >= 0 && from.Link.Blocks >= 7
	})
	require.Positive(t, from.Link.Rate)
	require.InDelta(t, 1, from.Link.Weight, 1e-9)
	require.EqualValues(t, 7, from.Link.Blocks)
	require.GreaterOrEqual(t, total, int64(2*smallChunk+17))
	require.GreaterOrEqual(t, from.Received, total)
	if b.status().Counters["fetch_errors"] == 0 { // else some came of what was given up
		require.Equal(t, total, from.Received)
	}
}
