package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

const (
	soon = 2 * time.Minute
	tick = 10 * time.Millisecond
	busy = 20 * time.Second // what a machine that is busy may add to a bound
)

// patient is of those who are to get an answer, however long a server that is
// there takes.
var patient = redis.Options{ReadTimeout: time.Minute, WriteTimeout: time.Minute, Patience: time.Minute}

var (
	slot = meta.Slot("d/1")
	key  = meta.Key{Slot: slot, Field: "a"}
)

func set(value string) []meta.Set { return []meta.Set{{Field: "a", Value: []byte(value)}} }

// watched is a watch of slot and what it has told.
type watched struct {
	t     *testing.T
	told  chan meta.Event
	ended chan error
	stop  context.CancelFunc
	last  string // what next has seen
}

func watch(t *testing.T, s *redis.Store, since uint64) *watched {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{t: t, told: make(chan meta.Event, 1000), ended: make(chan error, 1), stop: cancel}
	go func() {
		w.ended <- s.Watch(ctx, slot, since, func(evs []meta.Event) {
			for _, ev := range evs {
				w.told <- ev
			}
		})
	}()
	t.Cleanup(cancel)
	return w
}

// next expects the next event to be of a value. The one before may come again: who
// got no answer has made its change once more.
func (w *watched) next(value string) {
	w.t.Helper()
	for late := time.After(soon); ; {
		select {
		case ev := <-w.told:
			if string(ev.Value) == w.last && w.last != value {
				continue
			}
			require.Equal(w.t, value, string(ev.Value))
			w.last = value
			return
		case err := <-w.ended:
			w.t.Fatal("the watch ended:", err)
		case <-late:
			w.t.Fatal("the watch says nothing")
		}
	}
}

// end ends the watch, or sees it end by a gap.
func (w *watched) end(want error) {
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

// readable waits until key can be read and has a value.
func readable(t *testing.T, s *redis.Store, value string) {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() bool {
		recs, err := s.Get(t.Context(), key)
		if err != nil {
			require.ErrorIs(t, err, meta.ErrUnavailable)
			return false
		}
		require.Equal(t, value, string(recs[0].Value), "an outage is no answer")
		return true
	}, soon, tick)
	t.Logf("reads again after %v", time.Since(start))
}

// writable waits until key can be written.
func writable(t *testing.T, s *redis.Store, value string) (at uint64) {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() bool {
		var err error
		at, err = s.Apply(t.Context(), slot, nil, set(value))
		if err != nil {
			require.ErrorIs(t, err, meta.ErrUnavailable)
		}
		return err == nil
	}, soon, tick)
	t.Logf("writes again after %v", time.Since(start))
	return at
}

// TestOpenWithoutStore: a mount starts while the store is down, and needs no
// new start when it comes up.
func TestOpenWithoutStore(t *testing.T) {
	t.Parallel()
	addr := metatest.FreeAddr(t)
	for _, url := range []string{"redis://", "redis+sentinel://", "redis+cluster://"} {
		start := time.Now()
		path := ""
		if strings.Contains(url, "sentinel") {
			path = "/main"
		}
		s := open(t, url+"user:secret@"+addr+path, redis.Options{})
		require.Less(t, time.Since(start), busy)
		_, err := s.Get(t.Context(), key)
		require.ErrorIs(t, err, meta.ErrUnavailable, url)
		require.ErrorContains(t, err, addr)
		require.NotContains(t, err.Error(), "secret")
		require.Less(t, time.Since(start), redis.DefaultReadTimeout+busy)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = s.Apply(ctx, slot, nil, set("1"))
		cancel()
		require.ErrorIs(t, err, meta.ErrUnavailable, url)
	}
}

// TestKilled: a killed server is told from an absent record, and when it is
// back all goes on, watches with it.
func TestKilled(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s := open(t, srv.URL("x"), redis.Options{})
	w := watch(t, s, writable(t, s, "1"))
	writable(t, s, "2")
	w.next("2")

	srv.Kill()
	start := time.Now()
	_, err := s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	_, err = s.List(t.Context(), slot, "", 10)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	_, err = s.Apply(t.Context(), slot, nil, set("never"))
	require.ErrorIs(t, err, meta.ErrUnavailable)
	_, err = s.Lease(t.Context(), key, nil, time.Minute, nil)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.Less(t, time.Since(start), 4*redis.DefaultPatience+busy)

	srv.Restart()
	readable(t, s, "2")
	writable(t, s, "3")
	w.next("3")
	w.end(nil)
}

// TestStopped: a server that is stopped keeps its connections and says
// nothing; that is found out within the read timeout, and a caller who leaves
// is not kept.
func TestStopped(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s := open(t, srv.URL("x"), redis.Options{})
	w := watch(t, s, writable(t, s, "1"))
	srv.Pause()
	start := time.Now()
	_, err := s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.Less(t, time.Since(start), redis.DefaultReadTimeout+busy)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	start = time.Now()
	_, err = s.Apply(ctx, slot, nil, []meta.Set{{Field: "other", Value: []byte("x")}})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), busy)
	srv.Resume()
	readable(t, s, "1")
	at := writable(t, s, "2")
	for ev := range w.told { // "other" may have been written, too
		if ev.SlotVersion == at {
			break
		}
		require.Equal(t, "other", ev.Field)
	}
	w.end(nil)
}

// TestReplica: a server that follows another answers neither reads, which may
// be old, nor changes.
func TestReplica(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s := open(t, srv.URL("x"), redis.Options{Patience: 100 * time.Millisecond})
	w := watch(t, s, writable(t, s, "1"))
	require.NoError(t, s.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1"))
	for name, ask := range map[string]func() error{
		"get":     func() error { _, err := s.Get(t.Context(), key); return err },
		"list":    func() error { _, err := s.List(t.Context(), slot, "", 1); return err },
		"version": func() error { _, err := s.Version(t.Context(), slot); return err },
		"apply":   func() error { _, err := s.Apply(t.Context(), slot, nil, set("2")); return err },
	} {
		require.ErrorIs(t, ask(), meta.ErrUnavailable, name)
	}
	require.NoError(t, s.Do(t.Context(), "REPLICAOF", "NO", "ONE"))
	readable(t, s, "1")
	writable(t, s, "2")
	w.next("2")
	w.end(nil)
}

// TestWithoutReplicas: a master that must have replicas and has none may have
// been deposed: it answers neither reads nor changes.
func TestWithoutReplicas(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s := open(t, srv.URL("x"), redis.Options{Patience: 100 * time.Millisecond})
	writable(t, s, "1")
	require.NoError(t, s.Do(t.Context(), "CONFIG", "SET", "min-replicas-to-write", "1"))
	_, err := s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	_, err = s.Apply(t.Context(), slot, nil, set("2"))
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.NoError(t, s.Do(t.Context(), "CONFIG", "SET", "min-replicas-to-write", "0"))
	readable(t, s, "1")
}

// TestFull: a server without room answers reads.
func TestFull(t *testing.T) {
	t.Parallel()
	s := open(t, metatest.StartRedis(t).URL("x"), patient)
	_, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	require.NoError(t, s.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1"))
	_, err = s.Apply(t.Context(), slot, nil, set("2"))
	require.ErrorIs(t, err, meta.ErrUnavailable)
	recs, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "1", string(recs[0].Value))
	require.NoError(t, s.Do(t.Context(), "CONFIG", "SET", "maxmemory", "0"))
	_, err = s.Apply(t.Context(), slot, nil, set("2"))
	require.NoError(t, err)
}

// TestAuth: the errors of credentials name the store without its password.
func TestAuth(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t, "--requirepass", "s3cret:@/", "--user", "reader", "on", ">s3cret", "~x:*", "+@read", "-@write")
	as := func(user string) string { return strings.Replace(srv.URL("x"), "redis://", "redis://"+user, 1) }
	for _, user := range []string{":s3cret%3A%40%2F@", "default:s3cret%3A%40%2F@"} {
		s := open(t, as(user), patient)
		_, err := s.Apply(t.Context(), slot, nil, set("1"))
		require.NoError(t, err)
	}
	for _, user := range []string{"", ":s3cretwrong@", "nobody:s3cret@", "reader:s3cret@"} {
		s := open(t, as(user), patient)
		_, err := s.Apply(t.Context(), slot, nil, set("1"))
		require.ErrorIs(t, err, meta.ErrDenied, user)
		require.NotContains(t, err.Error(), "s3cret")
		if user != "reader:s3cret@" {
			_, err = s.Get(t.Context(), key)
			require.ErrorIs(t, err, meta.ErrDenied, user)
		}
	}
	s := open(t, strings.Replace(as(":s3cret%3A%40%2F@"), "/0/", "/99/", 1), patient)
	_, err := s.Get(t.Context(), key)
	require.ErrorContains(t, err, "DB index")
	require.NotErrorIs(t, err, meta.ErrUnavailable, "that never gets better")
}

// TestPrefix: the prefix is in every key, and nothing else is touched.
func TestPrefix(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	a, b := open(t, srv.URL("a"), patient), open(t, srv.URL("a/b"), patient)
	whole := open(t, srv.URL(""), patient)
	other := open(t, strings.Replace(srv.URL("a"), "/0/", "/1/", 1), patient)
	var told []*watched
	for i, s := range []*redis.Store{a, b, whole, other} {
		recs, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Nil(t, recs[0].Value, i)
		told = append(told, watch(t, s, 0))
		_, err = s.Apply(t.Context(), slot, []meta.If{{NoOthers: true}}, set(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	for i, w := range told {
		w.next(fmt.Sprint(i))
		require.Empty(t, w.told)
		w.end(nil)
	}
	keys, err := whole.Keys(t.Context(), "*")
	require.NoError(t, err)
	slices.Sort(keys)
	require.Equal(t, []string{"a/b:{d/1}", "a/b:{d/1}log", "a:{d/1}", "a:{d/1}log", "p2p:{d/1}", "p2p:{d/1}log"}, keys)
}

// TestRolledBack: versions that were taken back are not given out again, and a
// watch that was told of them knows, even after new changes.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s := open(t, srv.URL("x"), patient)
	v1, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	copied, err := s.Copy(t.Context(), slot)
	require.NoError(t, err)
	v2, err := s.Apply(t.Context(), slot, nil, set("lost"))
	require.NoError(t, err)
	v3, err := s.Apply(t.Context(), slot, nil, set("lost, too"))
	require.NoError(t, err)

	srv.Kill()
	srv.Wipe()
	srv.Restart()
	w := watch(t, s, v3)
	w.end(meta.ErrGap)
	require.Eventually(t, func() bool { return s.Paste(t.Context(), copied) == nil }, soon, tick)
	at, err := s.Version(t.Context(), slot)
	require.NoError(t, err)
	require.Equal(t, v1, at)
	watch(t, s, v2).end(meta.ErrGap)
	v4, err := s.Apply(t.Context(), slot, nil, set("2"))
	require.NoError(t, err)
	require.Greater(t, v4, v3)
	_, err = s.Apply(t.Context(), slot, []meta.If{{Field: "a", Version: v3}}, set("3"))
	require.ErrorIs(t, err, meta.ErrConflict)
	for _, since := range []uint64{v2, v3, v4 + 1} {
		watch(t, s, since).end(meta.ErrGap)
	}
	w = watch(t, s, v1)
	w.next("2")
	w.end(nil)
}
