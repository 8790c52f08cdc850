package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// newGetting returns a get of files of 0, 1, 2... bytes.
func newGetting(files int) *getting {
	g := &getting{progress: &nodepb.Progress{}, tell: func(*nodepb.Progress) error { return nil }}
	for i := range files {
		g.add(fmt.Sprint("d/", i), meta.Entry{Kind: meta.KindFile, Size: int64(i)})
	}
	return g
}

func TestGetFetchesSomeAtOnceAndSumsUp(t *testing.T) {
	t.Parallel()
	const files = 3 * getAtOnce
	g := newGetting(files)
	var running atomic.Int64
	var once sync.Once
	full := make(chan struct{})
	g.fetch = func(ctx context.Context, e meta.Entry, have func(int64) error) error {
		require.NotZero(t, e.Size, "there is nothing to fetch of an empty file")
		now := running.Add(1)
		defer running.Add(-1)
		if now > getAtOnce {
			t.Errorf("%d at once", now)
		}
		if now == getAtOnce {
			once.Do(func() { close(full) })
		}
		if e.Size <= getAtOnce { // the first ones wait for each other
			<-full
		}
		for n := range e.Size + 1 {
			if err := have(n); err != nil {
				return err
			}
		}
		return nil
	}
	var told []*nodepb.Progress
	g.tell = func(p *nodepb.Progress) error {
		told = append(told, proto.CloneOf(p))
		return nil
	}
	require.NoError(t, g.run(t.Context()))
	require.GreaterOrEqual(t, len(told), 2)
	for i, p := range told[1:] {
		require.GreaterOrEqual(t, p.Bytes, told[i].Bytes)
	}
	last := told[len(told)-1]
	require.True(t, last.Done)
	require.EqualValues(t, files, last.Files)
	require.EqualValues(t, files*(files-1)/2, last.Bytes)
	require.Equal(t, last.BytesTotal, last.Bytes)
}

func TestGetEndsWithTheFirstFailure(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	g := newGetting(1000)
	var begun atomic.Int64
	g.fetch = func(ctx context.Context, e meta.Entry, _ func(int64) error) error {
		begun.Add(1)
		if e.Size == 5 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	}
	err := g.run(t.Context())
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, `"/d/5"`)
	require.LessOrEqual(t, begun.Load(), int64(2*getAtOnce))
}

func TestGetEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	gone := errors.New("the caller is gone")
	g := newGetting(100)
	g.tell = func(*nodepb.Progress) error { return gone }
	g.fetch = func(_ context.Context, e meta.Entry, have func(int64) error) error { return have(e.Size) }
	require.ErrorIs(t, g.run(t.Context()), gone)

	g = newGetting(100)
	ctx, cancel := context.WithCancel(t.Context())
	g.fetch = func(ctx context.Context, _ meta.Entry, _ func(int64) error) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	require.ErrorIs(t, g.run(ctx), context.Canceled)
}
