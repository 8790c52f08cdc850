package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// TestSubscriptionLost: changes that were told to nobody while a subscription
// was broken are told when it is back.
func TestSubscriptionLost(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s, other := open(t, srv.URL("x"), patient), open(t, srv.URL("x"), patient)
	w := metatest.Watch(t, s, 0)
	for i := range 5 {
		if i > 0 {
			require.NoError(t, other.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub"))
		}
		for j := range 3 {
			_, err := other.Apply(t.Context(), slot, nil, set(fmt.Sprint(i, j)))
			require.NoError(t, err)
		}
		for j := range 3 {
			w.Next(fmt.Sprint(i, j))
		}
	}
	w.End(nil)
}

// TestLargeChanges: those too large to be published are read from the log, and
// ones too large for the log are a gap.
func TestLargeChanges(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	w := metatest.Watch(t, s, 0)
	_, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	w.Next("1")
	large := strings.Repeat("x", 100_000)
	for range 20 { // more than the log keeps
		_, err = s.Apply(t.Context(), slot, nil, set(large))
		require.NoError(t, err)
		w.Next(large)
	}
	_, err = s.Apply(t.Context(), slot, nil, set("2"))
	require.NoError(t, err)
	w.Next("2")
	_, err = s.Apply(t.Context(), slot, nil, set(large+large+large))
	require.NoError(t, err)
	w.End(meta.ErrGap)
	metatest.Watch(t, s, 0).End(meta.ErrGap)
}

// TestSlowWatch: a watch that takes its time misses nothing, as far as the log
// goes back.
func TestSlowWatch(t *testing.T) {
	t.Parallel()
	const n = 900
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	written := make(chan struct{})
	told := make(chan meta.Event, n)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(t.Context(), slot, 0, func(evs []meta.Event) {
			<-written
			for _, ev := range evs {
				told <- ev
			}
		})
	}()
	for i := range n {
		_, err := s.Apply(t.Context(), slot, nil, set(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	close(written)
	for i := range n {
		require.Equal(t, fmt.Sprint(i), string((<-told).Value))
	}
	require.NoError(t, s.Close())
	require.NoError(t, <-ended)
}

// TestIndex: fields are listed in pages below, at and above the number that
// gets an index, with tombstones and after deletions.
func TestIndex(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	list := func(limit int) (names []string) {
		for next := ""; ; {
			p, err := s.List(t.Context(), slot, next, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(p.Records), limit)
			for _, r := range p.Records {
				names = append(names, r.Field)
			}
			if next = p.Next; next == "" {
				return names
			}
		}
	}
	var want []string
	for i := range 200 {
		name := fmt.Sprintf("%04d", i)
		_, err := s.Apply(t.Context(), slot, []meta.If{{Field: name, Absent: true}}, []meta.Set{{Field: name, Value: []byte("x")}})
		require.NoError(t, err)
		want = append(want, name)
		if i > 60 && i < 70 || i == 199 {
			require.Equal(t, want, list(7))
			require.Equal(t, want, list(1000))
		}
	}
	for len(want) > 0 {
		sets := []meta.Set{{Field: want[0]}, {Field: "/gone/" + want[0], Value: []byte("x")}}
		_, err := s.Apply(t.Context(), slot, []meta.If{{Field: want[0], Present: true}}, sets)
		require.NoError(t, err)
		_, err = s.Apply(t.Context(), slot, nil, []meta.Set{{Field: "/gone/" + want[0]}, {Field: "never there"}})
		require.NoError(t, err)
		want = want[1:]
		if len(want)%40 == 0 {
			require.Equal(t, want, append([]string{}, list(7)...))
			_, err = s.Apply(t.Context(), slot, []meta.If{{NoOthers: true}}, nil)
			if len(want) > 0 {
				require.ErrorIs(t, err, meta.ErrConflict)
			} else {
				require.NoError(t, err)
			}
		}
	}
}

// TestLeasesEnd: leases that ran out are gone for whoever asks, in whatever
// way, and a change of their slot takes them out.
func TestLeasesEnd(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s := open(t, srv.URL("x"), patient)
	lease := func(field string) {
		_, err := s.Lease(t.Context(), meta.Key{Slot: slot, Field: field}, []byte("1"), 300*time.Millisecond, nil)
		require.NoError(t, err)
	}
	lease("b")
	_, err := s.Apply(t.Context(), slot, nil, []meta.Set{{Field: "b", Value: []byte("stays")}})
	require.NoError(t, err)
	lease("a")                              // the last change until it has run out
	other := open(t, srv.URL("x"), patient) // has seen no lease yet
	require.Eventually(t, func() bool {
		recs, err := other.Get(t.Context(), key)
		require.NoError(t, err)
		return recs[0].Value == nil
	}, soon, tick)
	p, err := other.List(t.Context(), slot, "", 10)
	require.NoError(t, err)
	require.Len(t, p.Records, 1)
	require.Equal(t, "stays", string(p.Records[0].Value))
	w := metatest.Watch(t, other, p.Version)
	_, err = other.Apply(t.Context(), slot, []meta.If{{Field: "a", Absent: true}, {Field: "b", Present: true}}, set("2"))
	require.NoError(t, err)
	w.Next("")
	w.Next("2")
	w.End(nil)
}

// TestUnreadable: what is not ours is not taken for an empty slot.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	require.NoError(t, s.Do(t.Context(), "SET", "x:{d/1}", "text"))
	_, err := s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrFormat)
	_, err = s.Apply(t.Context(), slot, nil, set("1"))
	require.ErrorIs(t, err, meta.ErrFormat)
	require.NoError(t, s.Do(t.Context(), "DEL", "x:{d/1}"))
	require.NoError(t, s.Do(t.Context(), "HSET", "x:{d/1}", "", "what", "a", "x"))
	_, err = s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrFormat)
	_, err = s.List(t.Context(), slot, "", 10)
	require.ErrorIs(t, err, meta.ErrFormat)
	_, err = s.Apply(t.Context(), slot, nil, set("1"))
	require.ErrorIs(t, err, meta.ErrFormat)
	require.ErrorIs(t, s.Watch(t.Context(), slot, 0, func([]meta.Event) {}), meta.ErrFormat)
}
