package metatest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// Compacter is a store that can be made to forget its history.
type Compacter interface {
	Compact(ctx context.Context) error
}

// Run tries everything that meta.Slots promises. open returns an empty store,
// which also is a Compacter; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) meta.Slots) {
	for name, fn := range map[string]func(*testing.T, meta.Slots){
		"Get":            testGet,
		"AnyBytes":       testAnyBytes,
		"Apart":          testApart,
		"Conditions":     testConditions,
		"NoOthers":       testNoOthers,
		"StoreCondition": testStoreCondition,
		"Limits":         testLimits,
		"Concurrent":     testConcurrent,
		"Pages":          testPages,
		"PagesWhole":     testPagesOfOneMoment,
		"Cancelled":      testCancelled,
		"Watch":          testWatch,
		"WatchResume":    testWatchResume,
		"WatchGap":       testWatchGap,
		"WatchClose":     testWatchClose,
		"Lease":          testLease,
		"LeaseExpire":    testLeaseExpire,
		"LeaseTaken":     testLeaseTaken,
	} {
		t.Run(name, func(t *testing.T) {
			// Stores may share a server, and forget history together.
			if name != "WatchGap" {
				t.Parallel()
			}
			s := open(t)
			t.Cleanup(func() { _ = s.Close() })
			fn(t, s)
		})
	}
}

const slot meta.Slot = "d/00000000000000aa"

func set(field, value string) []meta.Set {
	return []meta.Set{{Field: field, Value: []byte(value)}}
}

func get(t *testing.T, s meta.Slots, field string) meta.Record {
	t.Helper()
	recs, err := s.Get(t.Context(), meta.Key{Slot: slot, Field: field})
	require.NoError(t, err)
	require.Len(t, recs, 1)
	require.Equal(t, slot, recs[0].Slot)
	require.Equal(t, field, recs[0].Field)
	return recs[0]
}

func apply(t *testing.T, s meta.Slots, conds []meta.If, sets []meta.Set) uint64 {
	t.Helper()
	v, err := s.Apply(t.Context(), slot, conds, sets)
	require.NoError(t, err)
	return v
}

func version(t *testing.T, s meta.Slots) uint64 {
	t.Helper()
	v, err := s.Version(t.Context(), slot)
	require.NoError(t, err)
	return v
}

func testGet(t *testing.T, s meta.Slots) {
	require.Zero(t, version(t, s))
	r := get(t, s, "a")
	require.Nil(t, r.Value)
	require.Zero(t, r.Version)

	v1 := apply(t, s, nil, set("a", "1"))
	require.NotZero(t, v1)
	require.Equal(t, v1, version(t, s))
	r = get(t, s, "a")
	require.Equal(t, []byte("1"), r.Value)
	require.NotZero(t, r.Version)

	v2 := apply(t, s, nil, []meta.Set{{Field: "empty", Value: []byte{}}})
	require.Greater(t, v2, v1)
	require.NotNil(t, get(t, s, "empty").Value, "an empty value is not the lack of one")
	require.Equal(t, r.Version, get(t, s, "a").Version, "another field changed")

	apply(t, s, nil, set("a", "2"))
	require.Greater(t, get(t, s, "a").Version, r.Version)
	v3 := apply(t, s, nil, []meta.Set{{Field: "a"}})
	require.Nil(t, get(t, s, "a").Value)
	require.Equal(t, v3, version(t, s), "a deletion is a change")

	keys := []meta.Key{{Slot: slot, Field: ""}}
	for i := range 250 {
		keys = append(keys, meta.Key{Slot: slot, Field: fmt.Sprint(i)}, meta.Key{Slot: slot, Field: "empty"})
	}
	recs, err := s.Get(t.Context(), keys...)
	require.NoError(t, err)
	require.Len(t, recs, len(keys))
	require.Equal(t, v3, recs[0].Version, "a key without a field is the slot's version")
	require.Nil(t, recs[0].Value)
	for i, r := range recs[1:] {
		require.Equal(t, i%2 == 1, r.Value != nil, i)
	}
	recs, err = s.Get(t.Context())
	require.NoError(t, err)
	require.Empty(t, recs)
}

// anyNames are fields that a careless store would mix up or lose.
func anyNames() []string {
	names := []string{
		"a", "a/b", "/", "//", "\n", "a\nb", "\xff", "\xff\xfe", "index", "files", "%", "%2F", "#", " ", " trailing ",
		".x", "..x", "-", ",", "\x01", "\x7f", "\u00fc", "\u00e9", "e\u0301", "a:b", "a*b", "[x]", "0", "~", strings.Repeat("n", 255),
	}
	return names
}

func testAnyBytes(t *testing.T, s meta.Slots) {
	want := map[string]string{}
	for i, n := range anyNames() {
		want[n] = fmt.Sprint(i)
		apply(t, s, []meta.If{{Field: n, Absent: true}}, set(n, want[n]))
	}
	for n, v := range want {
		require.Equal(t, v, string(get(t, s, n).Value), "%q", n)
	}
	require.Equal(t, want, listAll(t, s, slot, 1000))
	for _, bad := range []string{"", "a\x00b", "\x00"} {
		_, err := s.Apply(t.Context(), slot, nil, set(bad, "x"))
		require.Error(t, err, "%q", bad)
	}
	require.Equal(t, want, listAll(t, s, slot, 3))
}

func listAll(t *testing.T, s meta.Slots, slot meta.Slot, limit int) map[string]string {
	t.Helper()
	got := map[string]string{}
	next := ""
	for {
		p, err := s.List(t.Context(), slot, next, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(p.Records), limit)
		for _, r := range p.Records {
			if _, twice := got[r.Field]; twice || r.Version == 0 {
				t.Errorf("%q with version %d is listed twice: %v", r.Field, r.Version, twice)
			}
			got[r.Field] = string(r.Value)
		}
		if next = p.Next; next == "" {
			return got
		}
	}
}

func testApart(t *testing.T, s meta.Slots) {
	slots := []meta.Slot{"d/1", "d/10", "d/1a", "o/1", "store"}
	for i, sl := range slots {
		_, err := s.Apply(t.Context(), sl, nil, set("x", fmt.Sprint(i)))
		require.NoError(t, err)
	}
	for i, sl := range slots {
		require.Equal(t, map[string]string{"x": fmt.Sprint(i)}, listAll(t, s, sl, 10), sl)
	}
	p, err := s.List(t.Context(), "d/2", "", 10)
	require.NoError(t, err)
	require.Empty(t, p.Records)
	require.Empty(t, p.Next)
	require.Zero(t, p.Version)
	before, err := s.Version(t.Context(), "d/1")
	require.NoError(t, err)
	_, err = s.Apply(t.Context(), "d/10", nil, set("y", "1"))
	require.NoError(t, err)
	after, err := s.Version(t.Context(), "d/1")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func testConditions(t *testing.T, s meta.Slots) {
	apply(t, s, []meta.If{{Field: "a", Absent: true}}, set("a", "1"))
	v := get(t, s, "a").Version
	for _, tc := range []struct {
		name  string
		conds []meta.If
		ok    bool
	}{
		{"absent but there", []meta.If{{Field: "a", Absent: true}}, false},
		{"absent", []meta.If{{Field: "b", Absent: true}}, true},
		{"present", []meta.If{{Field: "a", Present: true}}, true},
		{"present but not", []meta.If{{Field: "b", Present: true}}, false},
		{"version", []meta.If{{Field: "a", Version: v}}, true},
		{"other version", []meta.If{{Field: "a", Version: v + 1}}, false},
		{"version of nothing", []meta.If{{Field: "b", Version: v}}, false},
		{"all must hold", []meta.If{{Field: "a", Present: true}, {Field: "b", Present: true}}, false},
	} {
		before := version(t, s)
		got, err := s.Apply(t.Context(), slot, tc.conds, []meta.Set{{Field: "x", Value: []byte(tc.name)}, {Field: "y", Value: []byte("1")}})
		if tc.ok {
			require.NoError(t, err, tc.name)
			require.Equal(t, tc.name, string(get(t, s, "x").Value))
			require.Equal(t, got, version(t, s))
			continue
		}
		require.ErrorIs(t, err, meta.ErrConflict, tc.name)
		require.NotEqual(t, tc.name, string(get(t, s, "x").Value), "nothing may change")
		require.Equal(t, before, version(t, s), tc.name)
	}
	// Deleted and made again is another version.
	apply(t, s, nil, []meta.Set{{Field: "a"}})
	apply(t, s, nil, set("a", "1"))
	_, err := s.Apply(t.Context(), slot, []meta.If{{Field: "a", Version: v}}, set("a", "2"))
	require.ErrorIs(t, err, meta.ErrConflict)
}

// A change of a slot can depend on what the store says of itself.
func testStoreCondition(t *testing.T, s meta.Slots) {
	on := func(field string) []meta.If {
		return []meta.If{{Store: true, Field: field, Present: true}, {Field: "epoch/1", Absent: true}}
	}
	_, err := s.Apply(t.Context(), slot, on("epoch/1"), set("a", "0"))
	require.ErrorIs(t, err, meta.ErrConflict)
	for _, e := range []string{"epoch/1", "epoch/2"} {
		_, err = s.Apply(t.Context(), meta.StoreSlot, nil, []meta.Set{{Field: "epoch/1"}, {Field: "epoch/2"}})
		require.NoError(t, err)
		_, err = s.Apply(t.Context(), meta.StoreSlot, nil, set(e, ""))
		require.NoError(t, err)
		for _, f := range []string{"epoch/1", "epoch/2"} {
			_, err = s.Apply(t.Context(), slot, on(f), set("a", e))
			if f == e {
				require.NoError(t, err)
				require.Equal(t, e, string(get(t, s, "a").Value))
			} else {
				require.ErrorIs(t, err, meta.ErrConflict)
			}
		}
	}
	_, err = s.Apply(t.Context(), slot, []meta.If{{Store: true, Field: "x", Absent: true}}, nil)
	require.Error(t, err)
	require.NotErrorIs(t, err, meta.ErrConflict)
}

func testNoOthers(t *testing.T, s meta.Slots) {
	only := []meta.If{{NoOthers: true}}
	apply(t, s, only, set(".", "self"))
	apply(t, s, only, set(".", "self again"))
	for _, n := range []string{"/gone/", "/gone/x", "/gone/\xff"} { // tombstones
		apply(t, s, nil, set(n, "x"))
		apply(t, s, only, set(".", "self again"))
	}
	for _, n := range append(anyNames(), "/tx/x", "/gone", "/gone0", "/gonf/x") {
		apply(t, s, nil, set(n, "x"))
		_, err := s.Apply(t.Context(), slot, only, []meta.Set{{Field: "."}})
		require.ErrorIs(t, err, meta.ErrConflict, "%q", n)
		apply(t, s, nil, []meta.Set{{Field: n}})
	}
	// Another slot whose name begins alike is no other field.
	_, err := s.Apply(t.Context(), slot+"b", nil, set("x", "1"))
	require.NoError(t, err)
	apply(t, s, only, []meta.Set{{Field: "."}})
	require.Nil(t, get(t, s, ".").Value)
}

func testLimits(t *testing.T, s meta.Slots) {
	var conds []meta.If
	var sets []meta.Set
	for i := range meta.MaxSets {
		f := fmt.Sprintf("f%03d", i)
		conds = append(conds, meta.If{Field: f, Absent: true})
		sets = append(sets, meta.Set{Field: f, Value: make([]byte, 10_000)})
	}
	conds = append(conds, meta.If{Field: ".", Absent: true})
	apply(t, s, conds, sets)
	require.Len(t, listAll(t, s, slot, 7), meta.MaxSets)

	_, err := s.Apply(t.Context(), slot, nil, append(sets, meta.Set{Field: "more"}))
	require.Error(t, err)
	_, err = s.Apply(t.Context(), slot, nil, []meta.Set{{Field: "x"}, {Field: "x", Value: []byte("1")}})
	require.Error(t, err, "a field changed twice")
	_, err = s.Apply(t.Context(), slot, []meta.If{{Field: "x"}}, nil)
	require.Error(t, err, "a condition that says nothing")
}

func testConcurrent(t *testing.T, s meta.Slots) {
	const workers, rounds = 8, 25
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for done := 0; done < rounds; {
				recs, err := s.Get(t.Context(), meta.Key{Slot: slot, Field: "n"})
				if err != nil {
					t.Error(err)
					return
				}
				cond := meta.If{Field: "n", Absent: true}
				if recs[0].Value != nil {
					cond = meta.If{Field: "n", Version: recs[0].Version}
				}
				_, err = s.Apply(t.Context(), slot, []meta.If{cond}, []meta.Set{{Field: "n", Value: append(recs[0].Value, 'x')}})
				switch {
				case err == nil:
					done++
				case !errors.Is(err, meta.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, get(t, s, "n").Value, workers*rounds)
}

func testPages(t *testing.T, s meta.Slots) {
	want := map[string]string{}
	for i := range 500 {
		want[fmt.Sprintf("%03d", i)] = fmt.Sprint(i)
	}
	fill(t, s, want)
	for _, limit := range []int{1, 7, 250, 499, 500, 501, 5000} {
		require.Equal(t, want, listAll(t, s, slot, limit), limit)
	}
	p, err := s.List(t.Context(), slot, "", 10)
	require.NoError(t, err)
	require.Equal(t, version(t, s), p.Version)
}

func fill(t *testing.T, s meta.Slots, want map[string]string) {
	t.Helper()
	var sets []meta.Set
	for f, v := range want {
		sets = append(sets, meta.Set{Field: f, Value: []byte(v)})
		if len(sets) == meta.MaxSets {
			apply(t, s, nil, sets)
			sets = nil
		}
	}
	apply(t, s, nil, sets)
}

// testPagesOfOneMoment: fields that stand throughout a listing are listed
// once, whatever comes and goes beside them.
func testPagesOfOneMoment(t *testing.T, s meta.Slots) {
	want := map[string]string{}
	for i := range 100 {
		want[fmt.Sprintf("stay%03d", i)] = "1"
	}
	fill(t, s, want)
	first := version(t, s)
	got := map[string]int{}
	next, pages := "", 0
	for next != "" || pages == 0 {
		p, err := s.List(t.Context(), slot, next, 9)
		require.NoError(t, err)
		if pages++; pages == 1 {
			require.Equal(t, first, p.Version)
		}
		for _, r := range p.Records {
			got[r.Field]++
		}
		apply(t, s, nil, []meta.Set{
			{Field: fmt.Sprintf("a%d", pages), Value: []byte("x")},
			{Field: fmt.Sprintf("z%d", pages), Value: []byte("x")},
			{Field: fmt.Sprintf("a%d", pages-1)},
		})
		next = p.Next
	}
	for f := range want {
		require.Equal(t, 1, got[f], f)
	}
}

func testCancelled(t *testing.T, s meta.Slots) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, meta.Key{Slot: slot, Field: "a"})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, meta.ErrUnavailable, "it is us who gave up")
	_, err = s.Apply(ctx, slot, nil, set("a", "1"))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Close())
	_, err = s.Get(t.Context(), meta.Key{Slot: slot, Field: "a"})
	require.ErrorIs(t, err, meta.ErrUnavailable, "closed")
}
