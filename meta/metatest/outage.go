package metatest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// Outage is one way in which a store is out of reach.
type Outage struct {
	Name       string
	Begin, End func()
	// Passing: it may be over before anybody notices, and what is asked
	// meanwhile may be answered.
	Passing bool
}

// LinkOutages are those of a link, or of several.
func LinkOutages(p interface{ Set(Link) }) []Outage {
	of := func(name string, l Link) Outage {
		return Outage{Name: name, Begin: func() { p.Set(l) }, End: func() { p.Set(LinkOpen) }, Passing: l == LinkHalfOpen}
	}
	return []Outage{of("reset", LinkReset), of("silent", LinkSilent), of("mute", LinkMute), of("half open", LinkHalfOpen)}
}

// outageTimeout is the --meta-timeout of RunOutages, and outageLate what an
// answer may take beyond it on a machine that has much to do: what is asked of a
// link that is silent does not end by itself.
const (
	outageTimeout = 2 * time.Second
	outageLate    = 20 * time.Second
)

// outage is a View over a store that comes and goes.
type outage struct {
	t     *testing.T
	own   *meta.Catalog // the View's
	other *meta.Catalog // of another process
	view  *meta.View
	known []meta.Entry

	mu   sync.Mutex
	told map[string]bool
}

// RunOutages lets outages befall a store, one after the other, and checks each
// time what a mount promises: what is known stays, what is not is an error that
// is not "no such name", changes end, all within the bound, and everything goes
// on when it is over, with the clients there are. open opens one store for
// another process. O1, O2, O4, R3
func RunOutages(t *testing.T, open func(t *testing.T) meta.Slots, outages ...Outage) {
	o := &outage{t: t, told: make(map[string]bool)}
	o.other = meta.NewCatalog(open(t), meta.Options{})
	Join(t, o.other)
	for _, name := range []string{"a", "b"} {
		o.known = append(o.known, put(t, o.other, name))
	}
	o.own = meta.NewCatalog(open(t), meta.Options{})
	Join(t, o.own)
	var err error
	o.view, err = meta.NewView(meta.ViewConfig{Catalog: o.own, Timeout: outageTimeout, OnChange: o.changed})
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.view.Close() })
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- o.view.Run(ctx) }()
	defer func() { stop(); require.NoError(t, <-ran) }()
	require.Eventually(t, func() bool {
		_, err := o.view.List(t.Context(), meta.RootDir)
		return err == nil
	}, soon, 10*time.Millisecond)
	require.Equal(t, []string{"a", "b"}, o.list())
	for _, out := range outages {
		if !t.Run(out.Name, func(t *testing.T) {
			o.t = t
			o.during(out)
			o.after(out)
		}) {
			return
		}
	}
}

func (o *outage) changed(c meta.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told[c.Name] = true
}

func (o *outage) list() (names []string) {
	o.t.Helper()
	entries, err := o.view.List(o.t.Context(), meta.RootDir)
	require.NoError(o.t, err)
	for _, e := range entries {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

// within runs fn and checks that it took no longer than the bound.
func (o *outage) within(what string, fn func()) {
	o.t.Helper()
	start := time.Now()
	fn()
	require.Less(o.t, time.Since(start), outageTimeout+outageLate, what)
}

func (o *outage) during(out Outage) {
	t, names := o.t, o.list()
	out.Begin()
	defer out.End()
	o.within("a known name", func() {
		e, err := o.view.Confirm(t.Context(), meta.RootDir, "a")
		require.NoError(t, err)
		require.Equal(t, o.known[0].Inode, e.Inode)
	})
	o.within("a listing", func() {
		got := o.list()
		require.Subset(t, got, names)
		for _, name := range got { // what was sent during the outage before may come late
			require.True(t, slices.Contains(names, name) || strings.HasPrefix(name, "during "), name)
		}
	})
	o.within("an unknown name", func() {
		_, err := o.view.Lookup(t.Context(), meta.RootDir, "unknown")
		if out.Passing {
			require.Error(t, err)
			return
		}
		require.ErrorIs(t, err, meta.ErrUnavailable)
		require.NotErrorIs(t, err, meta.ErrNotFound)
		require.Equal(t, meta.StateDown, o.view.State().State)
	})
	o.within("a change", func() {
		ctx, cancel := context.WithTimeout(t.Context(), outageTimeout)
		defer cancel()
		_, err := o.own.Link(ctx, meta.RootDir, File("during "+out.Name, 1))
		if !out.Passing {
			require.ErrorIs(t, err, meta.ErrUnavailable)
		}
	})
	if out.Passing {
		return
	}
	start := time.Now()
	for range 100 {
		_, err := o.view.Confirm(t.Context(), meta.RootDir, "b")
		require.NoError(t, err)
	}
	require.Less(t, time.Since(start), outageLate, "known names wait for nothing while it is known to be down")
}

// after checks that everything goes on, changes made by others meanwhile
// included.
func (o *outage) after(out Outage) {
	t, start := o.t, time.Now()
	require.Eventually(t, func() bool { return o.view.State().State == meta.StateUp }, soon, 10*time.Millisecond)
	up := time.Since(start)
	try := func(fn func() error) {
		t.Helper()
		require.Eventually(t, func() bool { return fn() == nil }, soon, 10*time.Millisecond)
	}
	for i, c := range []*meta.Catalog{o.other, o.own} {
		name := fmt.Sprint("after ", out.Name, i)
		e := File(name, 1)
		try(func() error {
			_, _, err := c.Publish(t.Context(), meta.RootDir, e, meta.PublishIf{})
			return err
		})
		try(func() error {
			got, err := o.view.Lookup(t.Context(), meta.RootDir, name)
			if err == nil {
				require.Equal(t, e.Inode, got.Inode)
			}
			return err
		})
		require.Eventually(t, func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.told[name] || o.told[""] // or all of it is void
		}, soon, 10*time.Millisecond, "the watch goes on")
		o.mu.Lock()
		clear(o.told)
		o.mu.Unlock()
	}
	try(func() error {
		_, err := o.view.List(t.Context(), meta.RootDir)
		return err
	})
	require.Subset(t, o.list(), []string{"a", "b"})
	t.Logf("up again after %v, all goes on after %v", up.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
}
