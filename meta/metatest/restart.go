package metatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// Slot and Key are of the one record that Writable, Readable and Watch are about.
const Slot = meta.Slot("d/1")

// Key returns the record's key.
func Key() meta.Key { return meta.Key{Slot: Slot, Field: "a"} }

// SetTo returns the change that gives the record a value.
func SetTo(value string) []meta.Set { return []meta.Set{{Field: "a", Value: []byte(value)}} }

// busy is what a machine that has much to do may add to a bound.
const busy = 20 * time.Second

// Readable waits until the record can be read and has a value.
func Readable(t *testing.T, s meta.Slots, value string) {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() bool {
		recs, err := s.Get(t.Context(), Key())
		if err != nil {
			require.ErrorIs(t, err, meta.ErrUnavailable)
			return false
		}
		require.Equal(t, value, string(recs[0].Value), "an outage is no answer")
		return true
	}, soon, 10*time.Millisecond)
	t.Logf("reads again after %v", time.Since(start))
}

// Writable waits until the record can be written.
func Writable(t *testing.T, s meta.Slots, value string) (at uint64) {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() bool {
		var err error
		at, err = s.Apply(t.Context(), Slot, nil, SetTo(value))
		if err != nil {
			require.ErrorIs(t, err, meta.ErrUnavailable)
		}
		return err == nil
	}, soon, 10*time.Millisecond)
	t.Logf("writes again after %v", time.Since(start))
	return at
}

// Watched is a watch of the record's slot and what it has told.
type Watched struct {
	t     *testing.T
	told  chan meta.Event
	ended chan error
	stop  context.CancelFunc
	last  string // what Next has seen
}

// Watch begins one.
func Watch(t *testing.T, s meta.Slots, since uint64) *Watched {
	ctx, cancel := context.WithCancel(t.Context())
	w := &Watched{t: t, told: make(chan meta.Event, 1000), ended: make(chan error, 1), stop: cancel}
	go func() {
		w.ended <- s.Watch(ctx, Slot, since, func(evs []meta.Event) {
			for _, ev := range evs {
				w.told <- ev
			}
		})
	}()
	t.Cleanup(cancel)
	return w
}

// event returns the next event.
func (w *Watched) event() (ev meta.Event) {
	w.t.Helper()
	select {
	case ev = <-w.told:
	case err := <-w.ended:
		w.t.Fatal("the watch ended:", err)
	case <-time.After(soon):
		w.t.Fatal("the watch says nothing")
	}
	return ev
}

// Next expects the next event to be of a value. The one before may come again: who
// got no answer has made its change once more.
func (w *Watched) Next(value string) {
	w.t.Helper()
	got := string(w.event().Value)
	for got == w.last && w.last != value {
		got = string(w.event().Value)
	}
	require.Equal(w.t, value, got)
	w.last = value
}

// Silent expects that there is nothing more to be told.
func (w *Watched) Silent() {
	w.t.Helper()
	require.Empty(w.t, w.told)
}

// End ends the watch, or sees it end by a gap.
func (w *Watched) End(want error) {
	w.t.Helper()
	if want == nil {
		w.stop()
	}
	select {
	case err := <-w.ended:
		require.ErrorIs(w.t, err, want)
	case <-time.After(soon):
		w.t.Fatal("the watch does not end")
	}
}

// RunKilled checks that a killed server is told from an absent record, within the
// bounds of reads and of changes, and that when it is back all goes on, watches
// with it.
func RunKilled(t *testing.T, srv Server, s meta.Slots, read, change time.Duration) {
	w := Watch(t, s, Writable(t, s, "1"))
	Writable(t, s, "2")
	w.Next("2")

	srv.Kill()
	for _, c := range []struct {
		name  string
		bound time.Duration
		ask   func() error
	}{
		{"get", read, func() error { _, err := s.Get(t.Context(), Key()); return err }},
		{"list", read, func() error { _, err := s.List(t.Context(), Slot, "", 10); return err }},
		{"apply", change, func() error { _, err := s.Apply(t.Context(), Slot, nil, SetTo("never")); return err }},
		{"lease", change, func() error { _, err := s.Lease(t.Context(), Key(), nil, time.Minute, nil); return err }},
	} {
		start := time.Now()
		require.ErrorIs(t, c.ask(), meta.ErrUnavailable, c.name)
		require.Less(t, time.Since(start), c.bound+busy, c.name)
	}

	srv.Restart()
	Readable(t, s, "2")
	Writable(t, s, "3")
	w.Next("3")
	w.End(nil)
}

// RunStopped checks that a server that is stopped, which keeps its connections and
// says nothing, is found out within bound, that a caller who leaves is not kept,
// and that all goes on. pause and resume are of the server.
func RunStopped(t *testing.T, pause, resume func(), s meta.Slots, bound time.Duration) {
	w := Watch(t, s, Writable(t, s, "1"))
	pause()
	start := time.Now()
	_, err := s.Get(t.Context(), Key())
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.Less(t, time.Since(start), bound+busy)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	start = time.Now()
	_, err = s.Apply(ctx, Slot, nil, []meta.Set{{Field: "other", Value: []byte("x")}})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), busy)
	resume()
	Readable(t, s, "1")
	at := Writable(t, s, "2")
	for ev := w.event(); ev.SlotVersion != at; ev = w.event() { // "other" may have been written, too
		require.True(t, ev.Field == "other" || string(ev.Value) == "2", "%q", ev.Field)
	}
	w.End(nil)
}
