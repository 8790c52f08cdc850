package oracle

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// local are the steps that an ordinary directory can do, too.
var local = []Kind{Publish, Overwrite, Append, Patch, Truncate, Save, Mkdir, Rmdir, Unlink, Rename, Symlink, Chmod, Utimens}

// What the model says of names, attributes and bytes is what the kernel and a
// file system of this machine do.
func TestModelDoesAsADirectoryDoes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	base, m := t.TempDir(), NewModel()
	g := NewGenerator(seed, m, local, 3000, 4096, 3*4096)
	seen := map[Kind]int{}
	errnos := map[Result]int{}
	for range 3000 {
		s := g.Next()
		if s.Do == Check {
			names, err := Walk(base, m.all(), nil)
			require.Equal(t, Done, err)
			for p, e := range names { // directories have other counts of links
				e.Nlink = 1
				names[p] = e
			}
			require.Empty(t, m.Look([]View{{Names: names}}), "%s", s)
			continue
		}
		r := Perform(base, s)
		require.NoError(t, m.Take(s, r), "%s", s)
		seen[s.Do]++
		errnos[r]++
	}
	require.ElementsMatch(t, local, slices.Collect(maps.Keys(seen)))
	for _, r := range []Result{"ENOENT", "EEXIST", "ENOTEMPTY", "ENOTDIR", "EISDIR", "EINVAL"} {
		require.Contains(t, errnos, r)
	}
	t.Log(errnos)
}

// A kind that chance has left out comes before its time is over.
func TestEveryKindOfStepComes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	kinds := slices.Collect(maps.Keys(weights))
	slices.Sort(kinds)
	for i := range uint64(10) {
		const steps = 1000
		m, seen := NewModel(), map[Kind]int{}
		g := NewGenerator(seed+i, m, kinds, steps, 4096, 3*4096)
		for range steps {
			s := g.Next()
			seen[s.Do]++
			if s.Do != Check { // any of the ways it may go
				require.NoError(t, m.Take(s, m.outcomes(m.worlds[0], s)[0].result), "%s", s)
				m.worlds = m.worlds[:1]
			}
		}
		for _, k := range append(kinds, Restart, RestartEmpty, Heal, StoreStart, Check) {
			require.NotZero(t, seen[k], "seed %d: no step of the kind %s", seed+i, k)
		}
	}
}

func (m *Model) all() map[string]bool {
	all := map[string]bool{}
	for _, p := range m.Paths() {
		all[p] = true
	}
	return all
}

func TestAFailedChangeIsSettledByALook(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		shown    map[string]Seen
		worlds   int
		explains bool
	}{
		{"it has not happened", map[string]Seen{}, 1, true},
		{"it has", map[string]Seen{"d": {Kind: Dir, Mode: 0o755, Nlink: 1}}, 1, true},
		{"something else has", map[string]Seen{"d": {Kind: Dir, Mode: 0o700, Nlink: 1}}, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewModel()
			require.NoError(t, m.Take(Step{Do: CutStore}, Done))
			require.NoError(t, m.Take(Step{Do: Mkdir, Path: "d"}, EIO))
			require.Equal(t, 2, m.Worlds())
			require.NoError(t, m.Take(Step{Do: Heal}, Done))
			diff := m.Look([]View{{Node: 0, Names: tt.shown}, {Node: 3, Names: tt.shown}})
			require.Equal(t, tt.explains, diff == nil, "%v", diff)
			require.Equal(t, tt.worlds, m.Worlds())
		})
	}
}

func TestAKeptCopyIsGivenUpForAnotherOnly(t *testing.T) {
	t.Parallel()
	m := NewModel()
	require.NoError(t, m.Take(Step{Do: Publish, Path: "f", Size: 10}, Done))
	require.Error(t, m.Take(Step{Do: Drop, Path: "f"}, Done), "the only copy is given up")
	require.NoError(t, m.Take(Step{Do: Drop, Path: "f"}, Refused))
	sum := NewData(Bytes(0, 10)).Sum
	seen := Seen{Kind: File, Mode: 0o644, Nlink: 1, Size: 10, Sum: sum}
	for _, n := range []Node{1, 2} {
		require.Empty(t, m.Look([]View{{Node: n, Names: map[string]Seen{"f": seen}}}))
	}
	require.NoError(t, m.Take(Step{Do: Drop, Path: "f"}, Done))
	require.Equal(t, 2, m.Worlds(), "either reader may be the keeper now")
	holds := func(keeper Node) map[string]Holding {
		return map[string]Holding{"f": {State: "complete", Providers: []Provider{{1, true, keeper == 1}, {2, true, keeper == 2}}}}
	}
	require.NotEmpty(t, m.Look([]View{{Node: 1, Names: map[string]Seen{"f": seen}, Holds: holds(3)}}), "nobody keeps it")
	require.Empty(t, m.Look([]View{{Node: 1, Names: map[string]Seen{"f": seen}, Holds: holds(2)}}))
	require.Equal(t, 1, m.Worlds())
	require.True(t, m.Readable(3, "f"))
	require.NoError(t, m.Take(Step{Do: Kill, Node: 2}, Done))
	require.NoError(t, m.Take(Step{Do: Kill, Node: 1}, Done))
	require.False(t, m.Readable(3, "f"))
}

func TestWhatIsRecoveredHasTheModeItWasWrittenWith(t *testing.T) {
	t.Parallel()
	m := NewModel()
	for _, s := range []struct {
		step   Step
		result Result
	}{
		{Step{Do: Publish, Path: "f", Size: 10}, Done},
		{Step{Do: Chmod, Path: "f", Mode: 0o640}, Done},
		{Step{Do: CutStore}, Done},
		{Step{Do: Overwrite, Path: "f", Size: 20, Seed: 2}, EIO + AtClose},
		{Step{Do: Heal}, Done},
		{Step{Do: Recover, Path: "f", Mode: 1}, Done},
	} {
		require.NoError(t, m.Take(s.step, s.result), "%s", s.step)
	}
	e, sure := m.Certain("f")
	require.True(t, sure)
	require.Equal(t, uint32(0o640), e.Mode)
	require.Equal(t, int64(20), e.Data.size())
}

// A node that is cut off need not know a directory that came to the name of one
// which it had seen, and knew to be gone.
func TestWhatWasGoneBeforeTheCutIsNotKnown(t *testing.T) {
	t.Parallel()
	m := NewModel()
	take := func(s Step) {
		t.Helper()
		require.NoError(t, m.Take(s, Done), "%s", s)
	}
	dir := Seen{Kind: Dir, Mode: 0o755, Nlink: 1}
	for _, p := range []string{"d", "e", "stays"} {
		take(Step{Do: Mkdir, Path: p})
	}
	require.Empty(t, m.Look([]View{{Node: 1, Names: map[string]Seen{"d": dir, "e": dir, "stays": dir}}}))
	take(Step{Do: Rmdir, Path: "d"})
	take(Step{Do: CutStore, Node: 1})
	take(Step{Do: Rename, Path: "e", To: "d"})
	require.Empty(t, m.Look([]View{{Node: 1, Names: map[string]Seen{"e": dir, "stays": dir}}}))
	require.NotEmpty(t, m.Look([]View{{Node: 1, Names: map[string]Seen{"e": dir}}}), "it was known")
}

// A node that started since it was looked at has not heard of anything for sure.
func TestANodeThatStartedKnowsNothingForSure(t *testing.T) {
	t.Parallel()
	m := NewModel()
	dir := map[string]Seen{"d": {Kind: Dir, Mode: 0o755, Nlink: 1}}
	for _, s := range []Step{{Do: Kill, Node: 1}, {Do: Mkdir, Path: "d"}} {
		require.NoError(t, m.Take(s, Done))
	}
	require.Empty(t, m.Look([]View{{Node: 0, Names: dir}, {Node: 2, Names: dir}}))
	for _, s := range []Step{{Do: Restart, Node: 1}, {Do: CutStore, Node: 1}} {
		require.NoError(t, m.Take(s, Done))
	}
	require.Empty(t, m.Look([]View{{Node: 1}}))
}

func TestStepsAreReadBack(t *testing.T) {
	t.Parallel()
	all := []Step{{Do: Rename, Node: 2, Path: "d/\u00e9", To: "f"}, {Do: Patch, Node: 1, Path: "f", Size: 5, Off: 9, Seed: 1 << 63}}
	for _, s := range all {
		got, err := ParseStep(s.String())
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	_, err := ParseStep(`{"do":"publish","node":"x"}`)
	require.Error(t, err)
}

// What close could not publish for want of bytes of before waits, and can be
// published once they are there.
func TestBytesOutOfReachAreMissedWhenTheyAreWrittenOrPublished(t *testing.T) {
	t.Parallel()
	for _, s := range []Step{{Do: Append, Node: 1, Path: "f", Size: 3}, {Do: Patch, Node: 1, Path: "f", Size: 3, Off: 2}, {Do: Truncate, Node: 1, Path: "f", Size: 4}} {
		for _, r := range []Result{Done, EIO, EIO + AtClose} {
			m := NewModel()
			for _, before := range []Step{{Do: Publish, Path: "f", Size: 10}, {Do: Kill}} {
				require.NoError(t, m.Take(before, Done), "%s", before)
			}
			require.NoError(t, m.Take(s, r), "%s", s)
			if r != EIO+AtClose {
				require.Empty(t, m.Leftovers(1))
				continue
			}
			recover := Step{Do: Recover, Node: 1, Path: "f", Mode: 1}
			require.Equal(t, []string{"f"}, m.Leftovers(1))
			require.NoError(t, m.Take(recover, Refused))
			require.NoError(t, m.Take(recover, Done))
			require.Empty(t, m.Leftovers(1))
			e, sure := m.Certain("f")
			require.True(t, sure)
			require.True(t, e.Keepers.Has(1))
		}
	}
}

// A node that is cut off goes by what it knew, and does not know what is not there.
func TestWhoIsCutOffAnswersByWhatItKnew(t *testing.T) {
	t.Parallel()
	m := NewModel()
	publish := Step{Do: Publish, Node: 1, Path: "f", Size: 9, Seed: 2}
	require.NoError(t, m.Take(Step{Do: CutStore, Node: 1}, Done))
	require.Error(t, m.Take(publish, "EEXIST"), "it never saw the name")
	require.Error(t, m.Take(Step{Do: Unlink, Node: 1, Path: "g"}, "EEXIST"))
	m.seen[1] = newWorld().with("f", &Entry{Kind: File, Data: made(publish)})
	require.NoError(t, m.Take(publish, "EEXIST"))
	require.Error(t, m.Take(publish, "ENOENT"))
	require.Error(t, m.Take(Step{Do: Publish, Node: 1, Path: "d/f", Size: 1, Seed: 3}, "EEXIST"))
}
