package meta_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// traffic is a store that counts what one node asks of it.
type traffic struct {
	meta.Slots

	mu      sync.Mutex
	calls   map[string]int // "what SLOT", or "what" of those that change nothing
	written int            // bytes of fields and values
}

func newTraffic(s meta.Slots) *traffic { return &traffic{Slots: s, calls: make(map[string]int)} }

func (c *traffic) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[what]++
}

// take returns what was counted, and begins anew.
func (c *traffic) take() (calls map[string]int, written int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls, written = c.calls, c.written
	c.calls, c.written = make(map[string]int), 0
	return calls, written
}

func (c *traffic) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	c.count("get")
	return c.Slots.Get(ctx, keys...)
}

func (c *traffic) List(ctx context.Context, slot meta.Slot, next string, limit int) (meta.Page, error) {
	c.count("list")
	return c.Slots.List(ctx, slot, next, limit)
}

func (c *traffic) Version(ctx context.Context, slot meta.Slot) (uint64, error) {
	c.count("version")
	return c.Slots.Version(ctx, slot)
}

func (c *traffic) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	c.count(fmt.Sprint("change ", slot))
	c.mu.Lock()
	for _, s := range sets {
		c.written += len(s.Field) + len(s.Value)
	}
	c.mu.Unlock()
	return c.Slots.Apply(ctx, slot, conds, sets)
}

func (c *traffic) Watch(ctx context.Context, slot meta.Slot, since uint64, on func([]meta.Event)) error {
	c.count(fmt.Sprint("watch ", slot))
	return c.Slots.Watch(ctx, slot, since, on)
}

func (c *traffic) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	c.count(fmt.Sprint("lease ", key.Slot))
	l, err := c.Slots.Lease(ctx, key, value, ttl, conds)
	return countedLease{l, c, key.Slot}, err
}

type countedLease struct {
	meta.Lease
	c    *traffic
	slot meta.Slot
}

func (l countedLease) Renew(ctx context.Context) error {
	l.c.count(fmt.Sprint("renew ", l.slot))
	return l.Lease.Renew(ctx)
}

// idleMinute lets so many nodes live, each with a directory of its own that it
// watches, and returns what the first asked for in a minute.
func idleMinute(t *testing.T, nodes int) map[string]int {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	metatest.Join(t, meta.NewCatalog(store, meta.Options{}))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var counts []*traffic
	for i := range nodes {
		c := newTraffic(store)
		cat := meta.NewCatalog(c, meta.Options{})
		metatest.Join(t, cat)
		m, err := cat.JoinNode(ctx, meta.NodeInfo{Node: chunk.NodeID{byte(i), byte(i >> 8), 1}, Incarnation: 1, Name: fmt.Sprint(i), Host: "h"}, 0)
		require.NoError(t, err)
		v, err := meta.NewView(meta.ViewConfig{Catalog: cat})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, v.Close()) })
		d, err := cat.Mkdir(ctx, meta.RootDir, fmt.Sprint("d", i), meta.Attrs{Mode: 0o755})
		require.NoError(t, err)
		_, err = v.List(ctx, d.Inode)
		require.NoError(t, err)
		wg.Go(func() { _ = m.Run(ctx) })
		wg.Go(func() { _ = v.Run(ctx) })
		counts = append(counts, c)
	}
	synctest.Wait() // watches begin beside
	for _, c := range counts {
		calls, _ := c.take()
		watched := 0
		for what := range calls {
			if strings.HasPrefix(what, "watch ") {
				watched++
			}
		}
		require.Equal(t, 1, watched, "a node watches what it has looked at, and no key of all nodes: %v", calls)
	}
	time.Sleep(time.Minute) // of the bubble
	seen := make(map[string]bool)
	var first map[string]int
	for i, c := range counts {
		calls, written := c.take()
		require.Zero(t, written, "%v", calls)
		for what := range calls {
			if what != "get" && what != "version" && what != "list" {
				require.False(t, seen[what], "%s is done by two nodes", what)
				seen[what] = true
			}
		}
		if i == 0 {
			first = calls
		}
	}
	return first
}

// TestIdleNodes: what a node that does nothing asks of the store is a renewal of a
// record that no other node touches or watches, and looks at what it watches,
// however many nodes there are.
func TestIdleNodes(t *testing.T) {
	inBubble(func(t *testing.T) {
		few, many := idleMinute(t, 3), idleMinute(t, 100)
		require.Len(t, many, len(few), "%v, %v", few, many)
		total := 0
		for what, n := range few {
			require.InDelta(t, n, many[what], 1, what) // at the ends of the minute
			total += n
		}
		require.LessOrEqual(t, total, 60, "one request a second: %v", few)
		require.GreaterOrEqual(t, total, 15, "it does renew: %v", few)
	})(t)
}

// TestProviderJoins: what a provider that joins writes does not grow with how many
// there are.
func TestProviderJoins(t *testing.T) {
	t.Parallel()
	c := newTraffic(memory.New())
	t.Cleanup(func() { _ = c.Close() })
	cat := meta.NewCatalog(c, meta.Options{})
	metatest.Join(t, cat)
	set := chunk.NewSetID()
	var sizes []int
	for range 2000 {
		c.take()
		require.NoError(t, cat.Announce(t.Context(), set, chunk.NewNodeID(), false, true))
		calls, written := c.take()
		require.Len(t, calls, 2, "one read, and one change: %v", calls)
		sizes = append(sizes, written)
	}
	require.Equal(t, sizes[0], sizes[len(sizes)-1])
	require.LessOrEqual(t, sizes[0], 64)
}
