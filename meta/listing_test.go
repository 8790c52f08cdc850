package meta

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestListingModel plays random changes, told by events and ahead of them by
// reads, against a plain map of what the directory was at each version.
func TestListingModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		history := []map[string]Entry{{}}
		var events []DirEvent
		for at := uint64(1); at <= 60; at++ {
			now := map[string]Entry{}
			for k, v := range history[at-1] {
				now[k] = v
			}
			name := fmt.Sprint(rnd.IntN(6))
			ev := DirEvent{Name: name, At: at, Gone: rnd.IntN(3) == 0}
			if ev.Gone {
				delete(now, name)
			} else {
				ev.Entry = Entry{Name: name, Version: at}
				now[name] = ev.Entry
			}
			history, events = append(history, now), append(events, ev)
		}
		sorted := func(at uint64) []Entry {
			out := []Entry{}
			for _, e := range history[at] {
				out = append(out, e)
			}
			slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
			return out
		}
		first := rnd.Uint64N(30)
		l := newListing(sorted(first), first)
		lastRead := map[string]uint64{}
		// The watch may lag behind the moment of the listing.
		for at := first - rnd.Uint64N(first+1); at <= 60; at++ {
			if at > 0 {
				l.apply(events[at-1])
			}
			if rnd.IntN(4) == 0 { // a read, of this moment or ahead of the watch
				of := min(60, max(at, first)+rnd.Uint64N(5))
				name := fmt.Sprint(rnd.IntN(6))
				var e *Entry
				if x, ok := history[of][name]; ok {
					e = &x
				}
				l.set(name, e, of, of > at)
				if of < lastRead[name] {
					continue // passed over: a later one was there first
				}
				lastRead[name] = of
				got, ok := l.get(name)
				require.Equal(t, e != nil, ok, "seed %d, version %d", seed, at)
				if e != nil {
					require.GreaterOrEqual(t, got.Version, e.Version)
				}
			}
			if rnd.IntN(5) == 0 {
				l.all(at)
			}
		}
		require.Equal(t, sorted(60), l.all(60), "seed %d", seed)
	}
}

func TestListingIsShared(t *testing.T) {
	t.Parallel()
	l := newListing([]Entry{{Name: "b"}, {Name: "a"}}, 5)
	before := l.all(5)
	l.apply(DirEvent{Name: "a", Gone: true, At: 6})
	l.apply(DirEvent{Name: "c", Entry: Entry{Name: "c"}, At: 7})
	require.Equal(t, []Entry{{Name: "a"}, {Name: "b"}}, before)
	require.Equal(t, []Entry{{Name: "b"}, {Name: "c"}}, l.all(7))
	require.Equal(t, []Entry{{Name: "a"}, {Name: "b"}}, before)
	// A read that says what is known costs no new list.
	now := l.all(7)
	l.set("b", &now[0], 7, false)
	l.set("nobody", nil, 7, false)
	require.Empty(t, l.changed)
}
