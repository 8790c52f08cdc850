package redis_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// TestListWhileChanged: a page that is read after a change shows it, and each field
// is listed once.
func TestListWhileChanged(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	const n = 500
	want := fill(t, s, n)
	for _, limit := range []int{1, 7, 60} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			got := make(map[string]string)
			for next, page := "", 0; ; page++ {
				p, err := s.List(t.Context(), slot, next, limit)
				require.NoError(t, err)
				require.LessOrEqual(t, len(p.Records), limit)
				for _, r := range p.Records {
					_, twice := got[r.Field]
					require.False(t, twice, r.Field)
					got[r.Field] = string(r.Value)
				}
				if next = p.Next; next == "" {
					break
				}
				if page%5 > 1 {
					continue // pages that follow on each other unchanged
				}
				last := p.Records[len(p.Records)-1].Field
				added, value := last+"+", fmt.Sprintf("%d of %d", page, limit)
				sets := []meta.Set{{Field: added, Value: []byte(value)}}
				want[added] = value
				if i, _ := slices.BinarySearch(sorted(want), added); i+2 < len(want) {
					goes, changes := sorted(want)[i+1], sorted(want)[i+2]
					sets = append(sets, meta.Set{Field: goes}, meta.Set{Field: changes, Value: []byte(value)})
					delete(want, goes)
					want[changes] = value
				}
				_, err = s.Apply(t.Context(), slot, nil, sets)
				require.NoError(t, err)
			}
			require.Equal(t, want, got)
		})
	}
}

// TestListLeased: records that end are listed in pages until they do.
func TestListLeased(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	want := sorted(fill(t, s, 200))
	for i := range 20 {
		_, err := s.Lease(t.Context(), meta.Key{Slot: slot, Field: fmt.Sprintf("%04d-leased", i)}, nil, time.Millisecond, nil)
		require.NoError(t, err)
		l, err := s.Lease(t.Context(), meta.Key{Slot: slot, Field: fmt.Sprintf("%04d-long", i)}, nil, time.Hour, nil)
		require.NoError(t, err)
		want = append(want, fmt.Sprintf("%04d-long", i))
		defer l.Release(t.Context())
	}
	slices.Sort(want)
	require.Eventually(t, func() bool {
		var got []string
		for next := ""; ; {
			p, err := s.List(t.Context(), slot, next, 30)
			require.NoError(t, err)
			for _, r := range p.Records {
				got = append(got, r.Field)
			}
			if next = p.Next; next == "" {
				return slices.Equal(want, got)
			}
		}
	}, 10*time.Second, 10*time.Millisecond)
}

// TestListOfAnother: a place in a listing that is none is an error.
func TestListOfAnother(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	for _, next := range []string{"a", "\x00", "a\x00b", "\x00\x00b"} {
		_, err := s.List(t.Context(), slot, next, 10)
		require.ErrorIs(t, err, meta.ErrFormat, "%q", next)
	}
}

// fill gives a slot n fields.
func fill(t *testing.T, s meta.Slots, n int) map[string]string {
	all := make(map[string]string, n)
	for from := 0; from < n; from += meta.MaxSets {
		var sets []meta.Set
		for i := range meta.MaxSets {
			f := fmt.Sprintf("%04d", from+i)
			sets = append(sets, meta.Set{Field: f, Value: []byte("x")})
			all[f] = "x"
		}
		_, err := s.Apply(t.Context(), slot, nil, sets)
		require.NoError(t, err)
	}
	return all
}

func sorted(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for f := range m {
		names = append(names, f)
	}
	slices.Sort(names)
	return names
}
