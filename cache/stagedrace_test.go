package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
)

// line is one file over several publishes: whoever finds it spent waits for the
// next.
type line struct {
	t  *testing.T
	c  *Cache
	mu sync.RWMutex
	s  *Staged
	id uint64
}

func (l *line) change(do func(s *Staged) error) {
	for {
		l.mu.RLock()
		err := do(l.s)
		l.mu.RUnlock()
		if err == nil {
			return
		}
		if !errors.Is(err, ErrSpent) {
			l.t.Error(err)
			return
		}
		runtime.Gosched()
	}
}

// publish publishes while others write, and only then, with nobody in between,
// puts the next one in place.
func (l *line) publish() chunk.Object {
	sealed, err := l.s.Publish(l.t.Context(), cut())
	require.NoError(l.t, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NoError(l.t, l.s.Discard())
	require.NoError(l.t, l.s.Close())
	l.id++
	l.s, err = l.c.Stage(l.t.Context(), l.id, bs, &Base{Object: sealed.Object})
	require.NoError(l.t, err)
	return sealed.Object
}

// A write at the time of a publish is in it as a whole, or in the next.
func TestWritesDuringPublish(t *testing.T) {
	t.Parallel()
	const writers, rec, most, enough = 4, 64, 1000, 8
	const tail = most * rec // where appends begin; writer 0 writes before it
	c := openCache(t, config(t))
	l := &line{t: t, c: c}
	var err error
	l.s, err = c.Stage(t.Context(), 0, bs, nil)
	require.NoError(t, err)
	require.NoError(t, l.s.Truncate(t.Context(), tail))
	var publishes atomic.Int32
	var written [writers]int
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			p := make([]byte, rec)
			for ; written[w] < most && publishes.Load() < enough; written[w]++ {
				for k := 0; k < rec; k += 4 {
					binary.LittleEndian.PutUint32(p[k:], uint32(w*most+written[w]+1))
				}
				if w == 0 {
					l.change(func(s *Staged) error { return s.WriteAt(context.Background(), p, int64(written[w]*rec)) })
				} else {
					l.change(func(s *Staged) error { _, err := s.Append(context.Background(), p); return err })
				}
				// A few between two publishes are enough.
				for seen := publishes.Load(); written[w]%20 == 19 && publishes.Load() == seen && seen < enough; {
					runtime.Gosched()
				}
			}
		})
	}
	check := func(b []byte) map[uint32]int {
		seen := map[uint32]int{}
		require.Zero(t, len(b)%rec)
		for at := 0; at < len(b); at += rec {
			n := binary.LittleEndian.Uint32(b[at:])
			for k := 0; k < rec; k += 4 {
				require.Equal(t, n, binary.LittleEndian.Uint32(b[at+k:]), "torn at %d", at)
			}
			seen[n]++
		}
		return seen
	}
	var before map[uint32]int
	for publishes.Load() < enough {
		o := l.publish()
		publishes.Add(1)
		f := openFile(t, c, o)
		b := make([]byte, o.Size)
		_, err := f.Reader().ReadAt(b, 0)
		require.NoError(t, err)
		seen := check(b)
		for n := range before {
			require.Contains(t, seen, n, "lost by a publish")
		}
		before = seen
	}
	wg.Wait()
	seen := check(readStaged(t, l.s))
	delete(seen, 0)
	total := 0
	for w, n := range written {
		for i := range n {
			require.Equal(t, 1, seen[uint32(w*most+i+1)], "record %d of writer %d", i, w)
		}
		total += n
	}
	require.Len(t, seen, total)
	require.Greater(t, total, 2*enough)
	require.NoError(t, l.s.Close())
}

// Those who need one block of the base at once share one fetch; one who gives
// up takes nobody with him.
func TestBaseBlockIsFetchedOnce(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(4 * bs)
	want := wholeContent(o)
	var fetches atomic.Int32
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	s := staged(t, c, 1, &Base{Object: o, Read: func(ctx context.Context, off int64, p []byte) error {
		fetches.Add(1)
		asked <- struct{}{}
		select {
		case <-answer:
		case <-ctx.Done():
			return ctx.Err()
		}
		copy(p, want[off:])
		return nil
	}})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		if err := s.WriteAt(ctx, []byte{0}, bs); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	<-asked
	for i := range 5 {
		wg.Go(func() {
			if err := s.WriteAt(t.Context(), []byte{byte(i)}, bs+1+int64(i)); err != nil {
				t.Error(err)
			}
		})
	}
	// The block is waited for, and nothing else is.
	require.NoError(t, s.WriteAt(t.Context(), want[:bs], 2*bs))
	require.Equal(t, int64(4*bs), s.Size())
	cancel()
	<-asked
	close(answer)
	wg.Wait()
	require.Equal(t, int32(2), fetches.Load())
	copy(want[2*bs:], want[:bs])
	copy(want[bs+1:], []byte{0, 1, 2, 3, 4})
	go func() { <-asked; <-asked }()
	require.Equal(t, want, readStaged(t, s))
}

// What the base does not give is an error of the write or the publish, and the
// file is as it was.
func TestBaseIsOutOfReach(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := object(20 * bs)
	want := wholeContent(o)
	lost := errors.New("nobody has it")
	var have atomic.Bool
	s := staged(t, c, 1, &Base{Object: o, Read: func(_ context.Context, off int64, p []byte) error {
		if !have.Load() && off >= 10*bs {
			return lost
		}
		copy(p, want[off:])
		return nil
	}})
	require.ErrorIs(t, s.WriteAt(t.Context(), []byte("x"), 15*bs+1), lost)
	require.NoError(t, s.WriteAt(t.Context(), []byte("x"), 1))
	want[1] = 'x'
	require.NoError(t, s.WriteAt(t.Context(), want[:bs], 15*bs)) // whole
	copy(want[15*bs:], want[:bs])
	_, err := s.Publish(t.Context(), cut())
	require.ErrorIs(t, err, lost)
	_, err = s.ReadAt(t.Context(), make([]byte, 20*bs), 0)
	require.ErrorIs(t, err, lost)
	have.Store(true)
	require.Equal(t, want, readStaged(t, s))
	sealed, err := s.Publish(t.Context(), cut())
	require.NoError(t, err)
	requireObject(t, c, sealed.Object, want)
}

// Bytes of a base that went bad on disk do not become part of a new object.
func TestBaseIsBad(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := publishNew(t, c, 1, 5*bs)
	corrupt(t, c.roots[0].path(o.ID, ".data"), 2*bs, 3)
	s := staged(t, c, 2, &Base{Object: o})
	require.NoError(t, s.WriteAt(t.Context(), []byte("x"), 0))
	_, err := s.Publish(t.Context(), cut())
	require.ErrorIs(t, err, chunk.ErrCorrupt)
}

// 500 files open for writing take a descriptor each, copies two more at most.
func TestManyStagedFiles(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	o := publishNew(t, c, 1, 3*bs)
	count := func(staged []*Staged) (n int) {
		for _, s := range staged {
			n++
			if s.base != nil {
				n++
			}
		}
		return n
	}
	var open []*Staged
	for i := range 500 {
		var base *Base
		if i%2 == 0 {
			base = &Base{Object: o}
		}
		s, err := c.Stage(t.Context(), uint64(10+i), bs, base)
		require.NoError(t, err)
		open = append(open, s)
		require.NoError(t, s.WriteAt(t.Context(), fmt.Appendf(nil, "file %d", i), 1000))
	}
	require.Equal(t, 1, c.Stats().OpenFiles, "the base is open once")
	require.LessOrEqual(t, count(open), 750)
	for i, s := range open {
		b := readStaged(t, s)
		require.Contains(t, string(b), fmt.Sprintf("file %d", i))
		require.NoError(t, s.Discard())
		require.NoError(t, s.Close())
	}
	require.Zero(t, c.Stats().StagedFiles)
}

// Many files published by several at once, while objects come and go.
func TestPublishStorm(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	cfg := config(t)
	cfg.Size = 600 * bs
	cfg.SyncEvery = time.Millisecond
	c := openCache(t, cfg)
	running(t, c)
	var mu sync.Mutex
	var objects []chunk.Object
	var wg sync.WaitGroup
	for w := range 6 {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for i := range 15 {
				if w%2 == 0 {
					fill(t, c, object(bs+r.Int64N(20*bs)))
					continue
				}
				o := publishNew(t, c, uint64(w*100+i), bs+r.IntN(6*bs))
				if r.IntN(3) == 0 {
					if err := c.Keep(t.Context(), o.ID, false); err != nil {
						t.Error(err)
					}
					continue
				}
				mu.Lock()
				objects = append(objects, o)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, o := range objects {
		requireObject(t, c, o, wholeContent(o))
	}
	require.Equal(t, len(objects), c.Stats().Kept)
}
