package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/etcd/embedded"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const slot meta.Slot = "d/1"

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func open(t *testing.T, url string) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), url, etcd.Options{ReadTimeout: time.Minute, WriteTimeout: time.Minute, Patience: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestRestartKeepsData(t *testing.T) {
	var log bytes.Buffer
	cfg := embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(&log, nil))}
	srv := start(t, cfg)
	v, err := open(t, srv.URL()).Apply(t.Context(), slot, nil, []meta.Set{{Field: "a", Value: []byte("1")}})
	require.NoError(t, err)
	require.NoError(t, srv.Defragment())
	require.NoError(t, srv.Close())

	srv = start(t, cfg)
	recs, err := open(t, srv.URL()).Get(t.Context(), meta.Key{Slot: slot, Field: "a"})
	require.NoError(t, err)
	require.Equal(t, []byte("1"), recs[0].Value)
	require.Equal(t, v, recs[0].Version)
	require.NoError(t, srv.Close())
	require.Empty(t, log.String(), "a server that does well says nothing")
}

func TestSeveralAtOnce(t *testing.T) {
	t.Parallel()
	a := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	b := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	require.NotEqual(t, a.URL(), b.URL())
	_, err := open(t, a.URL()).Apply(t.Context(), slot, nil, []meta.Set{{Field: "a", Value: []byte("1")}})
	require.NoError(t, err)
	recs, err := open(t, b.URL()).Get(t.Context(), meta.Key{Slot: slot, Field: "a"})
	require.NoError(t, err)
	require.Nil(t, recs[0].Value)
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Listen: l.Addr().String()})
	require.ErrorContains(t, err, "--meta-listen")
	require.ErrorContains(t, err, l.Addr().String())
}

func TestURL(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, listen, advertise, host, err string }{
		{name: "wildcard", listen: "0.0.0.0:0", advertise: "10.1.2.3", host: "etcd://10.1.2.3:"},
		{name: "wildcard with a port", listen: "[::]:0", advertise: "10.1.2.3:7", host: "etcd://10.1.2.3:"},
		{name: "wildcard alone", listen: "0.0.0.0:0", err: "--advertise"},
		{name: "no port", listen: "localhost", err: "--meta-listen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			s, err := embedded.Start(ctx, embedded.Config{Dir: t.TempDir(), Listen: tc.listen, Advertise: tc.advertise})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			defer s.Close()
			require.True(t, strings.HasPrefix(s.URL(), tc.host), s.URL())
			require.NotEqual(t, tc.host+"0", s.URL())
		})
	}
}

func TestDirInUse(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}
	s := start(t, cfg)
	_, err := embedded.Start(t.Context(), cfg)
	require.ErrorContains(t, err, cfg.Dir)
	require.ErrorContains(t, err, "in use")
	require.NoError(t, s.Close())
	start(t, cfg)
}

// Another node's watch must not hold up the end of the server until etcd's own
// time-out, which is over 5 seconds: each time, if it does. A machine that is busy
// may take as long now and then.
func TestCloseWhileWatched(t *testing.T) {
	t.Parallel()
	quickest := time.Hour
	for try := 0; try < 5 && quickest > 4*time.Second; try++ {
		quickest = min(quickest, closeWhileWatched(t))
	}
	require.Less(t, quickest, 4*time.Second, "the server waits for a watch")
}

func closeWhileWatched(t *testing.T) (took time.Duration) {
	s := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	store := open(t, s.URL())
	_, err := store.Apply(t.Context(), slot, nil, []meta.Set{{Field: "a", Value: []byte("1")}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan struct{})
	watched := make(chan error, 1)
	go func() {
		watched <- store.Watch(ctx, slot, 0, func([]meta.Event) {
			select {
			case <-seen:
			default:
				close(seen)
			}
		})
	}()
	<-seen
	began := time.Now()
	require.NoError(t, s.Close())
	took = time.Since(began)
	cancel()
	require.NoError(t, <-watched)
	return took
}

func TestDirect(t *testing.T) {
	t.Parallel()
	srv := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	s, err := etcd.Open(t.Context(), srv.URL(), etcd.Options{ReadTimeout: time.Minute, WriteTimeout: time.Minute, KV: srv.Direct(), Watch: srv.Watcher()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	key := meta.Key{Slot: slot, Field: "a"}
	v, err := s.Apply(t.Context(), slot, []meta.If{{Field: "a", Absent: true}}, []meta.Set{{Field: "a", Value: []byte("1")}})
	require.NoError(t, err)
	for _, by := range []*etcd.Store{s, open(t, srv.URL())} {
		recs, err := by.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, []byte("1"), recs[0].Value)
		require.Equal(t, v, recs[0].Version)
		_, err = by.Apply(t.Context(), slot, []meta.If{{Field: "a", Absent: true}}, []meta.Set{{Field: "a"}})
		require.ErrorIs(t, err, meta.ErrConflict)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Get(ctx, key)
	require.ErrorIs(t, err, context.Canceled)

	var wg sync.WaitGroup // calls under way when the server ends
	for range 8 {
		wg.Go(func() {
			for err := error(nil); err == nil; {
				_, err = s.Apply(t.Context(), slot, nil, []meta.Set{{Field: "b", Value: []byte("2")}})
			}
		})
	}
	require.NoError(t, srv.Close())
	wg.Wait()
	_, err = s.Get(t.Context(), key)
	require.ErrorIs(t, err, meta.ErrUnavailable)
	_, err = s.Apply(t.Context(), slot, nil, []meta.Set{{Field: "a"}})
	require.ErrorIs(t, err, meta.ErrUnavailable)
}

// What another node's change answered, or any watch told, is in every later read
// by a function call.
func TestDirectReadsAreCurrent(t *testing.T) {
	t.Parallel()
	srv := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	s, err := etcd.Open(t.Context(), srv.URL(), etcd.Options{
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, KV: srv.Direct(), Watch: srv.Watcher(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	other := open(t, srv.URL())
	atLeast := func(v uint64) error {
		recs, err := s.Get(t.Context(), meta.Key{Slot: slot, Field: "."}, meta.Key{Slot: slot})
		if err == nil && recs[1].Version < v {
			err = fmt.Errorf("read %d after %d", recs[1].Version, v)
		}
		one, oerr := s.Version(t.Context(), slot)
		if oerr == nil && one < v {
			oerr = fmt.Errorf("read version %d after %d", one, v)
		}
		return errors.Join(err, oerr)
	}
	const writers, changes = 4, 50
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last atomic.Uint64
	told := make(chan error, 2)
	for _, by := range []*etcd.Store{s, other} {
		go func() {
			var late error
			err := by.Watch(ctx, slot, 0, func(evs []meta.Event) {
				v := evs[len(evs)-1].SlotVersion
				if e := atLeast(v); e != nil && ctx.Err() == nil {
					late = errors.Join(late, e)
				}
				if last.Add(uint64(len(evs))) == 2*writers*changes {
					cancel()
				}
			})
			told <- errors.Join(err, late)
		}()
	}
	var wg sync.WaitGroup
	failed := make(chan error, writers)
	for w := range writers {
		by := []*etcd.Store{s, other}[w%2]
		wg.Go(func() {
			for i := range changes {
				v, err := by.Apply(t.Context(), slot, nil, []meta.Set{{Field: fmt.Sprintf("%d", w), Value: []byte{byte(i)}}})
				if err = errors.Join(err, atLeast(v)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	require.NoError(t, <-failed)
	require.NoError(t, <-told)
	require.NoError(t, <-told)
	require.EqualValues(t, 2*writers*changes, last.Load())
}

// Watches by function calls end with the server, and with who watches.
func TestDirectWatchEnds(t *testing.T) {
	t.Parallel()
	srv := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	s, err := etcd.Open(t.Context(), srv.URL(), etcd.Options{ReadTimeout: time.Minute, WriteTimeout: time.Minute, KV: srv.Direct(), Watch: srv.Watcher()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Apply(t.Context(), slot, nil, []meta.Set{{Field: "a", Value: []byte("1")}})
	require.NoError(t, err)
	watch := func(ctx context.Context) (seen, ended chan error) {
		seen, ended = make(chan error, 1), make(chan error, 1)
		go func() {
			ended <- s.Watch(ctx, slot, 0, func([]meta.Event) {
				select {
				case seen <- nil:
				default:
				}
			})
		}()
		return seen, ended
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		seen, ended := watch(ctx)
		<-seen
		cancel()
		require.NoError(t, <-ended)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := watch(ctx)
	<-seen
	require.NoError(t, srv.Close(), "it waits for watches to end, and they do")
	cancel()
	require.NoError(t, <-ended)
}
