package integration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each of these is a function of testdata/writer.py. It says what has to be
// there; the other node has to show it, and nothing else ever.
func TestWritersOfEveryKindPublishTheWhole(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for _, w := range []struct {
		name string
		// late: something but the opener's close is last, so that the publish
		// comes after the writer has gone on (W3).
		late bool
		// whole: the other node sees the file absent or whole, nothing else.
		whole bool
	}{
		{name: "child_passes_by", whole: true}, // W2
		{name: "forked_writers", whole: true},
		{name: "child_goes_on", late: true},          // W3
		{name: "closed_before_unmapped", late: true}, // W3
		{name: "mapped_by_c", late: true},            // W3
		{name: "duplicated"},                         // W2
		{name: "five_hundred"},                       // W1
		{name: "appended"},                           // W5
		{name: "checkpoint"},                         // W4, N3, W11
		{name: "changed_in_place"},                   // W6
		{name: "shuffled"},                           // N4
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			a, b := p.mkdir(t, w.name)
			seen := func() []string { return nil }
			if w.whole {
				seen = p.watchAt(t, b+"/f")
			}
			promised := strings.Fields(python(t, "writer.py", w.name, a))
			require.NotEmpty(t, promised)
			for ; len(promised) > 0; promised = promised[2:] {
				path, want := b+"/"+promised[0], promised[1]
				if w.late {
					eventually(t, commandLimit, path+" published", func() bool {
						r := runCmd(t, commandLimit, digestCmd(path))
						return r.code == 0 && digestOf(t, r) == want
					})
				}
				if w.name == "five_hundred" {
					continue // all of them at once, below
				}
				require.Equal(t, want, digest(t, path), path)
			}
			sameOnBoth(t, "content", a, b)
			if got := seen(); w.whole && !p.plain() {
				require.Subset(t, []string{"absent", digest(t, b+"/f")}, got, "the other node saw something in between")
			}
		})
	}
}

// W13
func TestAFileOver4GiBIsWrittenAndItsHolesStayHome(t *testing.T) {
	t.Parallel()
	p := newPair(t, bigBlocks)
	a, b := p.mkdir(t, "d")
	python(t, "writer.py", "large", a)
	for _, off := range []int64{0, 4<<30 - 100_000, 4<<30 + 300_000, 5<<30 - 1_000_001} {
		sameAt(t, a+"/f", b+"/f", off, 250_000)
	}
	at, bt := python(t, "tree.py", "holes", a+"/f"), python(t, "tree.py", "holes", b+"/f")
	require.Contains(t, bt, "size 5368709120")
	require.Equal(t, lastLines(at, 3), lastLines(bt, 3), "size, first and last MiB")
	if p.plain() {
		return
	}
	require.LessOrEqual(t, diskUsage(t, p.na.cache), int64(64<<20), "holes took space")
	p.nb.receivedAtMost(64<<20, bigBlock, "holes travelled")
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func TestSafetensorsAreSavedHereAndLoadedElsewhere(t *testing.T) {
	t.Parallel()
	p := newPair(t, bigBlocks)
	a, b := p.mkdir(t, "m")
	for seed := range 3 { // each save replaces the one before
		name := "/model.safetensors"
		disk := p.src + name
		python(t, "reader.py", "make", disk, "20", itoa(seed))
		want := python(t, "reader.py", "tensors", disk, "0")
		python(t, "reader.py", "make", a+name, "20", itoa(seed))
		require.Equal(t, want, python(t, "reader.py", "tensors", b+name, itoa(seed)))
		require.Equal(t, digest(t, disk), digest(t, b+name))
		require.Equal(t, "model.safetensors\n", must(t, "ls", "-A", b), "something is left of the save")
	}
}

// N7 A4 W12
func TestTheHubsCacheIsFilledHereAndLoadedElsewhere(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	model := p.src + "/model"
	python(t, "hub.py", "make", model)
	want := python(t, "hub.py", "download", model, p.src+"/cache")
	for _, how := range []string{"download", "resume"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a, b := p.mkdir(t, how)
			require.Equal(t, want, python(t, "hub.py", how, model, a))
			require.Equal(t, want, python(t, "hub.py", "load", b))
			require.Equal(t, want, python(t, "hub.py", "download", model, b), "a second download on the other node")
			python(t, "hub.py", "lock", a)
			require.Equal(t, "100", must(t, "cat", b+"/counter"))
		})
	}
}
