package metatest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// soon bounds what must happen without a word from the test, on a machine whose
// processes may all stand still for seconds at a time. A Sentinel that stood still
// for two does nothing for the next thirty.
const soon = 2 * time.Minute

// watcher collects what a watch tells.
type watcher struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // after done

	mu    sync.Mutex
	calls [][]meta.Event
}

func watch(t *testing.T, s meta.Slots, since uint64) *watcher {
	ctx, stop := context.WithCancel(t.Context())
	w := &watcher{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = s.Watch(ctx, slot, since, func(evs []meta.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls = append(w.calls, evs)
		})
	}()
	t.Cleanup(func() { stop(); <-w.done })
	return w
}

func (w *watcher) events() []meta.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []meta.Event
	for _, c := range w.calls {
		out = append(out, c...)
	}
	return out
}

// wait returns the events once there are n.
func (w *watcher) wait(t *testing.T, n int) []meta.Event {
	t.Helper()
	require.Eventually(t, func() bool { return len(w.events()) >= n }, soon, 5*time.Millisecond)
	evs := w.events()
	require.Len(t, evs, n)
	return evs
}

func (w *watcher) end(t *testing.T) error {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(soon):
		t.Fatal("the watch does not end")
	}
	return w.err
}

func testWatch(t *testing.T, s meta.Slots) {
	v0 := apply(t, s, nil, set("before", "1"))
	w := watch(t, s, v0)
	var want []meta.Event
	note := func(v uint64, field string, value []byte) {
		r := get(t, s, field)
		ev := meta.Event{Record: meta.Record{Slot: slot, Field: field, Value: value, Version: r.Version}, SlotVersion: v}
		if value == nil {
			ev.Version = v
		}
		want = append(want, ev)
	}
	for i, name := range anyNames() {
		value := fmt.Sprint(i)
		note(apply(t, s, nil, set(name, value)), name, []byte(value))
	}
	v := apply(t, s, nil, []meta.Set{{Field: "before"}})
	note(v, "before", nil)
	// Changes of other slots, and ones that did not happen, are not told.
	_, err := s.Apply(t.Context(), slot+"b", nil, set("x", "1"))
	require.NoError(t, err)
	_, err = s.Apply(t.Context(), slot, []meta.If{{Field: "nobody", Present: true}}, set("x", "1"))
	require.ErrorIs(t, err, meta.ErrConflict)
	v = apply(t, s, nil, []meta.Set{{Field: "empty", Value: []byte{}}})
	note(v, "empty", []byte{})

	got := w.wait(t, len(want))
	for i := range got {
		if got[i].Value == nil {
			got[i].Version = want[i].Version // of a field that is gone, stores say what they like
		}
	}
	require.Equal(t, want, got)
	w.stop()
	require.NoError(t, w.end(t))
}

func testWatchResume(t *testing.T, s meta.Slots) {
	var versions []uint64
	for i := range 20 {
		// Two fields a change: they must be told in one call.
		versions = append(versions, apply(t, s, nil, []meta.Set{
			{Field: "a", Value: []byte(fmt.Sprint(i))}, {Field: fmt.Sprint(i), Value: []byte("x")},
		}))
	}
	for _, i := range []int{0, 7, 18, 19} {
		w := watch(t, s, versions[i])
		evs := w.wait(t, 2*(len(versions)-1-i))
		for j, ev := range evs {
			require.Equal(t, versions[i+1+j/2], ev.SlotVersion)
		}
		w.mu.Lock()
		for _, c := range w.calls {
			require.Zero(t, len(c)%2, "half of a change was told")
		}
		w.mu.Unlock()
		w.stop()
		require.NoError(t, w.end(t))
	}
}

func testWatchGap(t *testing.T, s meta.Slots) {
	v1 := apply(t, s, nil, set("a", "1"))
	apply(t, s, nil, set("a", "2"))
	v3 := apply(t, s, nil, set("a", "3"))
	_, err := s.Apply(t.Context(), slot+"b", nil, set("x", "1"))
	require.NoError(t, err)
	require.NoError(t, s.(Compacter).Compact(t.Context()))

	require.ErrorIs(t, watch(t, s, v1).end(t), meta.ErrGap)
	// Nothing happened to the slot since: no gap, though the moment is forgotten.
	w := watch(t, s, v3)
	require.Eventually(t, func() bool {
		apply(t, s, nil, set("b", "1"))
		return len(w.events()) > 0
	}, soon, 20*time.Millisecond)
	w.stop()
	require.NoError(t, w.end(t))
}

func testWatchClose(t *testing.T, s meta.Slots) {
	w := watch(t, s, 0)
	apply(t, s, nil, set("a", "1"))
	w.wait(t, 1)
	require.NoError(t, s.Close())
	require.NoError(t, w.end(t))
}

var leased = meta.Key{Slot: slot, Field: "."}

func testLease(t *testing.T, s meta.Slots) {
	absent := []meta.If{{Field: ".", Absent: true}}
	l, err := s.Lease(t.Context(), leased, []byte("me"), time.Hour, absent)
	require.NoError(t, err)
	require.Equal(t, "me", string(get(t, s, ".").Value))
	_, err = s.Lease(t.Context(), leased, []byte("you"), time.Hour, absent)
	require.ErrorIs(t, err, meta.ErrConflict)
	require.NoError(t, l.Renew(t.Context()))
	require.NoError(t, l.Release(t.Context()))
	require.Nil(t, get(t, s, ".").Value)
	require.ErrorIs(t, l.Renew(t.Context()), meta.ErrNotFound)
	require.NoError(t, l.Release(t.Context()), "again")
	_, err = s.Lease(t.Context(), leased, []byte("you"), time.Hour, absent)
	require.NoError(t, err)
}

func testLeaseExpire(t *testing.T, s meta.Slots) {
	const ttl = 2 * time.Second
	var l meta.Lease
	var w *watcher
	for renewed := false; !renewed; { // again, if nobody renewed it in time
		began := time.Now()
		var err error
		l, err = s.Lease(t.Context(), leased, []byte("me"), ttl, nil)
		require.NoError(t, err)
		w = watch(t, s, version(t, s))
		renewed = renewFor(t, s, l, ttl, began)
	}
	ev := w.wait(t, 1) // it goes by itself
	require.Nil(t, ev[0].Value)
	require.Equal(t, ".", ev[0].Field)
	require.Nil(t, get(t, s, ".").Value)
	require.ErrorIs(t, l.Renew(t.Context()), meta.ErrNotFound)
}

// renewFor renews a lease, which began then, for twice as long as it lasts, and
// checks that it is there all the while. False: the test stood still for so long
// that it may have run out.
func renewFor(t *testing.T, s meta.Slots, l meta.Lease, ttl time.Duration, began time.Time) bool {
	t.Helper()
	for end := began.Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 4) {
		asked := time.Now()
		err := l.Renew(t.Context())
		if time.Since(began) >= ttl {
			return false
		}
		require.NoError(t, err)
		began = asked
		there := get(t, s, ".").Value != nil
		if time.Since(began) >= ttl {
			return false
		}
		require.True(t, there)
	}
	return true
}

func testLeaseTaken(t *testing.T, s meta.Slots) {
	old, err := s.Lease(t.Context(), leased, []byte("old"), time.Hour, nil)
	require.NoError(t, err)
	r := get(t, s, ".")
	_, err = s.Lease(t.Context(), leased, []byte("new"), time.Hour, []meta.If{{Field: ".", Version: r.Version}})
	require.NoError(t, err)
	require.ErrorIs(t, old.Renew(t.Context()), meta.ErrNotFound)
	require.NoError(t, old.Release(t.Context()))
	require.Equal(t, "new", string(get(t, s, ".").Value), "the old one's release is not the new one's")
}
