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

const slot = metatest.Slot

var key = metatest.Key()

func set(value string) []meta.Set { return metatest.SetTo(value) }

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

func TestKilled(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	metatest.RunKilled(t, srv, open(t, srv.URL("x"), redis.Options{}), redis.DefaultPatience, redis.DefaultPatience)
}

func TestStopped(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	metatest.RunStopped(t, srv.Pause, srv.Resume, open(t, srv.URL("x"), redis.Options{}), redis.DefaultReadTimeout)
}

// TestReplica: a server that follows another answers neither reads, which may
// be old, nor changes.
func TestReplica(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s := open(t, srv.URL("x"), redis.Options{Patience: 100 * time.Millisecond})
	w := metatest.Watch(t, s, metatest.Writable(t, s, "1"))
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
	metatest.Readable(t, s, "1")
	metatest.Writable(t, s, "2")
	w.Next("2")
	w.End(nil)
}

// TestWithoutReplicas: a master that must have replicas and has none may have
// been deposed: it answers neither reads nor changes.
func TestWithoutReplicas(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	s := open(t, srv.URL("x"), redis.Options{Patience: 100 * time.Millisecond})
	metatest.Writable(t, s, "1")
	require.NoError(t, s.Do(t.Context(), "CONFIG", "SET", "min-replicas-to-write", "1"))
	_, err := s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	_, err = s.Apply(t.Context(), slot, nil, set("2"))
	require.ErrorIs(t, err, meta.ErrUnavailable)
	require.NoError(t, s.Do(t.Context(), "CONFIG", "SET", "min-replicas-to-write", "0"))
	metatest.Readable(t, s, "1")
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
	var told []*metatest.Watched
	for i, s := range []*redis.Store{a, b, whole, other} {
		recs, err := s.Get(t.Context(), key)
		require.NoError(t, err)
		require.Nil(t, recs[0].Value, i)
		told = append(told, metatest.Watch(t, s, 0))
		_, err = s.Apply(t.Context(), slot, []meta.If{{NoOthers: true}}, set(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	for i, w := range told {
		w.Next(fmt.Sprint(i))
		w.Silent()
		w.End(nil)
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
	w := metatest.Watch(t, s, v3)
	w.End(meta.ErrGap)
	require.Eventually(t, func() bool { return s.Paste(t.Context(), copied) == nil }, soon, tick)
	at, err := s.Version(t.Context(), slot)
	require.NoError(t, err)
	require.Equal(t, v1, at)
	metatest.Watch(t, s, v2).End(meta.ErrGap)
	v4, err := s.Apply(t.Context(), slot, nil, set("2"))
	require.NoError(t, err)
	require.Greater(t, v4, v3)
	_, err = s.Apply(t.Context(), slot, []meta.If{{Field: "a", Version: v3}}, set("3"))
	require.ErrorIs(t, err, meta.ErrConflict)
	for _, since := range []uint64{v2, v3, v4 + 1} {
		metatest.Watch(t, s, since).End(meta.ErrGap)
	}
	w = metatest.Watch(t, s, v1)
	w.Next("2")
	w.End(nil)
}
