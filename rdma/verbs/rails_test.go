package verbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// clock is a time that only moves when told to.
type clock struct{ t time.Time }

func (c *clock) now() time.Time      { return c.t }
func (c *clock) add(d time.Duration) { c.t = c.t.Add(d) }

func newClock() *clock { return &clock{t: time.Unix(1e9, 0)} }

func TestRoundRobin(t *testing.T) {
	t.Parallel()
	r := newRails(3, RoundRobin, newClock().now)
	seen := map[int]int{}
	for range 30 {
		n, ok := r.pick(chunk.BlockRef{})
		require.True(t, ok)
		seen[n]++
	}
	require.Equal(t, map[int]int{0: 10, 1: 10, 2: 10}, seen)
}

func TestRandomRails(t *testing.T) {
	t.Parallel()
	r := newRails(4, Random, newClock().now)
	draw := 0
	r.random = func(n int) int { require.Equal(t, 4, n); draw++; return draw % n }
	for want := range 8 {
		n, ok := r.pick(chunk.BlockRef{})
		require.True(t, ok)
		require.Equal(t, (want+1)%4, n)
	}
}

func TestStickyHash(t *testing.T) {
	t.Parallel()
	r := newRails(8, StickyHash, newClock().now)
	object := chunk.NewObjectID()
	used := map[int]bool{}
	for group := range 64 {
		want, ok := r.pick(chunk.BlockRef{Object: object, Index: group * stickyBlocks})
		require.True(t, ok)
		used[want] = true
		for i := range stickyBlocks {
			got, _ := r.pick(chunk.BlockRef{Object: object, Index: group*stickyBlocks + i})
			require.Equal(t, want, got)
		}
	}
	require.Greater(t, len(used), 3, "all groups on few rails")
}

func TestFailingRailIsPausedAndTriedAgain(t *testing.T) {
	t.Parallel()
	c := newClock()
	r := newRails(2, RoundRobin, c.now)
	want := firstPause
	for range 8 {
		require.Equal(t, want, r.failed(1))
		require.Equal(t, want, r.failed(1), "failures that come together count once")
		for range 4 {
			n, ok := r.pick(chunk.BlockRef{})
			require.True(t, ok)
			require.Zero(t, n)
		}
		c.add(want - 1)
		n, _ := r.pick(chunk.BlockRef{})
		require.Zero(t, n)
		c.add(1)
		seen := map[int]bool{}
		for range 2 {
			n, _ := r.pick(chunk.BlockRef{})
			seen[n] = true
		}
		require.Len(t, seen, 2, "the rail is not tried again")
		want = min(2*want, longPause)
	}
	r.worked(1)
	require.Equal(t, firstPause, r.failed(1))
}

// TestSilentRail: only what is silent again and again, with no success between,
// is to be paused.
func TestSilentRail(t *testing.T) {
	t.Parallel()
	r := newRails(2, RoundRobin, newClock().now)
	for range maxSilent - 1 {
		require.False(t, r.silent(0))
	}
	r.worked(0)
	for range maxSilent - 1 {
		require.False(t, r.silent(0))
		require.False(t, r.silent(1))
	}
	require.True(t, r.silent(0))
	require.True(t, r.silent(0), "after its pause, too")
	r.worked(1)
	require.False(t, r.silent(1))
}

func TestAllRailsPaused(t *testing.T) {
	t.Parallel()
	c := newClock()
	for _, s := range []Strategy{Random, RoundRobin, StickyHash} {
		r := newRails(2, s, c.now)
		r.failed(0)
		r.failed(1)
		_, ok := r.pick(chunk.BlockRef{})
		require.False(t, ok)
		c.add(firstPause)
		_, ok = r.pick(chunk.BlockRef{})
		require.True(t, ok)
	}
}

func TestParseStrategy(t *testing.T) {
	t.Parallel()
	for _, s := range []Strategy{Random, RoundRobin, StickyHash} {
		got, err := ParseStrategy(string(s))
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	_, err := ParseStrategy("best")
	require.ErrorContains(t, err, "sticky-hash")
}
