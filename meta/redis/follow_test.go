package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// collect follows what has been.
func collect(t *testing.T, s *redis.Store, opts meta.FollowOptions) (out []meta.SlotChange, err error) {
	t.Helper()
	opts.Past = true
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err = s.Follow(ctx, opts, func(ch meta.SlotChange) error {
		if ch.Slot != "" || ch.Lost != "" {
			out = append(out, ch)
		}
		return nil
	})
	return out, err
}

// TestStream: what was changed is in the stream with what was there before, on
// one server and on a Cluster; what was cut off is an error that says so, and a
// hole in it is told.
func TestStream(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(string) string{
		"one server": metatest.StartRedis(t).URL, "cluster": metatest.StartRedisCluster(t).URL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, url("stream"), redis.Options{ReadTimeout: time.Minute, WriteTimeout: time.Minute, Patience: time.Minute, Stream: meta.StreamOptions{On: true, MaxLen: 200, Batch: 7}})
			slot := func(i int) meta.Slot { return meta.Slot(fmt.Sprintf("d/%016x", i)) }
			for i := range 20 {
				_, err := s.Apply(t.Context(), slot(i), nil, []meta.Set{{Field: "a", Value: []byte("1")}})
				require.NoError(t, err)
				_, err = s.Apply(t.Context(), slot(i), nil, []meta.Set{{Field: "a"}, {Field: "none"}, {Field: "b", Value: []byte{}}})
				require.NoError(t, err)
			}
			_, err := s.Apply(t.Context(), "o/x", nil, []meta.Set{{Field: "a", Value: []byte("not told")}})
			require.NoError(t, err)
			l, err := s.Lease(t.Context(), meta.Key{Slot: "n/x", Field: "."}, []byte("node"), time.Hour, nil)
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
			var got []meta.SlotChange
			require.Eventually(t, func() bool {
				got, err = collect(t, s, meta.FollowOptions{From: meta.FromOldest})
				require.NoError(t, err)
				return len(got) == 42
			}, soon, 20*time.Millisecond)
			require.Equal(t, slot(19), got[39].Slot)
			require.Equal(t, [][]byte{[]byte("1"), nil}, got[39].Before)
			require.Equal(t, "a", got[39].Events[0].Field)
			require.Nil(t, got[39].Events[0].Value)
			require.WithinDuration(t, time.Now(), got[39].At, time.Minute)
			require.Equal(t, [][]byte{[]byte("node")}, got[41].Before)

			after, err := collect(t, s, meta.FollowOptions{From: got[9].Position})
			require.NoError(t, err)
			require.Equal(t, got[10:], after)
			after, err = collect(t, s, meta.FollowOptions{From: got[9].Position, Again: true})
			require.NoError(t, err)
			require.Equal(t, got[9:], after)

			for i := range 600 {
				_, err := s.Apply(t.Context(), slot(i), nil, []meta.Set{{Field: "a", Value: []byte("2")}})
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool {
				_, err = collect(t, s, meta.FollowOptions{From: got[9].Position})
				return err != nil
			}, soon, 20*time.Millisecond)
			var gap *meta.GapError
			require.True(t, errors.As(err, &gap), err)
			require.ErrorIs(t, err, meta.ErrGap)
			_, err = collect(t, s, meta.FollowOptions{From: "tomorrow"})
			require.ErrorIs(t, err, meta.ErrName)
		})
	}
}

// TestNoStream: without one nothing can be told of what has been, and that says
// what there is to do.
func TestNoStream(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	_, err := collect(t, s, meta.FollowOptions{From: meta.FromOldest})
	require.ErrorIs(t, err, meta.ErrNoHistory)
	require.ErrorContains(t, err, "--stream")
}
