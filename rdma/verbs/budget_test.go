package verbs

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// ledger knows which registrations are open.
type ledger struct {
	t    *testing.T
	mu   sync.Mutex
	last int
	open map[int]string
}

func newLedger(t *testing.T) *ledger { return &ledger{t: t, open: map[int]string{}} }

func (l *ledger) make(key string) func() (int, error) {
	return func() (int, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.last++
		l.open[l.last] = key
		return l.last, nil
	}
}

func (l *ledger) close(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[n]; !ok {
		l.t.Errorf("registration %d was closed twice", n)
	}
	delete(l.open, n)
}

func (l *ledger) keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, k := range l.open {
		out = append(out, k)
	}
	return out
}

func TestBudget(t *testing.T) {
	t.Parallel()
	l, c := newLedger(t), newClock()
	b := newBudget[string](100, 100, l.close, c.now)
	get := func(key string, size int64) *registered[string, int] {
		r, err := b.get(t.Context(), key, size, l.make(key))
		require.NoError(t, err)
		return r
	}
	a, x := get("a", 40), get("x", 40)
	require.Same(t, a, get("a", 40), "0 registrations on repeat")
	_, err := b.get(t.Context(), "y", 40, l.make("y"))
	require.ErrorIs(t, err, errBudget)
	_, err = b.get(t.Context(), "z", 101, l.make("z"))
	require.ErrorIs(t, err, errBudget)

	b.done(a)
	_, err = b.get(t.Context(), "y", 40, l.make("y"))
	require.ErrorIs(t, err, errBudget, "a has a user left")
	b.done(x)
	b.done(a) // used last
	y := get("y", 40)
	require.ElementsMatch(t, []string{"a", "y"}, l.keys())
	b.done(y)
	made, bytes := b.stats()
	require.EqualValues(t, 3, made)
	require.EqualValues(t, 80, bytes)

	c.add(time.Minute)
	b.done(get("a", 40))
	b.sweep(30 * time.Second)
	require.Equal(t, []string{"a"}, l.keys())
	b.stop()
	require.Empty(t, l.keys())
	_, err = b.get(t.Context(), "a", 40, l.make("a"))
	require.ErrorIs(t, err, chunk.ErrClosed)
}

// TestBudgetOfMany: there are no more registrations than may be, however small.
func TestBudgetOfMany(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	b := newBudget[string](1<<30, 2, l.close, time.Now)
	get := func(key string) (*registered[string, int], error) { return b.get(t.Context(), key, 1, l.make(key)) }
	x, err := get("x")
	require.NoError(t, err)
	y, err := get("y")
	require.NoError(t, err)
	_, err = get("z")
	require.ErrorIs(t, err, errBudget, "both are in use")

	b.done(x)
	z, err := get("z")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"y", "z"}, l.keys(), "x made room")
	_, err = get("x")
	require.ErrorIs(t, err, errBudget)

	b.drop(y, 0)
	_, err = get("x")
	require.ErrorIs(t, err, errBudget, "one that was dropped counts until its last user is gone")
	b.done(y)
	x, err = get("x")
	require.NoError(t, err)
	b.done(x)
	b.done(z)
	b.stop()
	require.Empty(t, l.keys())
}

func TestWhatRegistrationsCountFor(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 64<<10, charge(chunk.Span{Len: 1}))
	require.EqualValues(t, 64<<10, charge(chunk.Span{Off: 4096, Len: 64 << 10}))
	require.EqualValues(t, 64<<10+1, charge(chunk.Span{Len: 64<<10 + 1}))
	require.Equal(t, maxRegions, mostRegions())
	require.Equal(t, maxRegions, mostRegions(0, 1<<20), "it does not say, or has more than enough")
	require.Equal(t, 500, mostRegions(1<<20, 1000))
	require.Equal(t, 1, mostRegions(1))
}

// TestBudgetDrop: what was dropped is made anew, and closed with its last user.
func TestBudgetDrop(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	b := newBudget[string](100, 100, l.close, time.Now)
	one, err := b.get(t.Context(), "a", 40, l.make("a"))
	require.NoError(t, err)
	b.drop(one, 0)
	b.drop(one, 0)
	two, err := b.get(t.Context(), "a", 40, l.make("a"))
	require.NoError(t, err)
	require.NotEqual(t, one.R, two.R)
	require.Len(t, l.keys(), 2)
	b.done(one)
	require.Len(t, l.keys(), 1)
	b.done(two)
	b.stop()
	require.Empty(t, l.keys())
	_, bytes := b.stats()
	require.Zero(t, bytes)
}

// TestBudgetDropAge: however often it is to be dropped, a registration is made
// once in a while only.
func TestBudgetDropAge(t *testing.T) {
	t.Parallel()
	l, c := newLedger(t), newClock()
	b := newBudget[string](100, 100, l.close, c.now)
	for range 5 {
		for range 10 {
			r, err := b.get(t.Context(), "a", 40, l.make("a"))
			require.NoError(t, err)
			b.drop(r, time.Second)
			b.done(r)
			c.add(100 * time.Millisecond)
		}
	}
	made, _ := b.stats()
	require.EqualValues(t, 5, made)
	b.stop()
	require.Empty(t, l.keys())
}

func TestBudgetFailureIsNotKept(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	b := newBudget[string](100, 100, l.close, time.Now)
	want := errors.New("cannot allocate memory")
	_, err := b.get(t.Context(), "a", 100, func() (int, error) { return 0, want })
	require.ErrorIs(t, err, want)
	r, err := b.get(t.Context(), "a", 100, l.make("a"))
	require.NoError(t, err)
	b.done(r)
	b.stop()
	require.Empty(t, l.keys())
}

func TestBudgetWaitEnds(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	b := newBudget[string](100, 100, l.close, time.Now)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		r, err := b.get(context.Background(), "a", 1, func() (int, error) {
			close(begun)
			<-goOn
			return l.make("a")()
		})
		if err != nil {
			t.Error(err)
			return
		}
		b.done(r)
	})
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.get(ctx, "a", 1, l.make("a"))
	require.ErrorIs(t, err, context.Canceled)
	close(goOn)
	wg.Wait()
	b.stop()
	require.Empty(t, l.keys())
}

func TestBudgetConcurrent(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	b := newBudget[int](64, 100, l.close, time.Now)
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for range 500 {
				key := r.IntN(10)
				x, err := b.get(t.Context(), key, 8, func() (int, error) {
					if r.IntN(10) == 0 {
						return 0, errBudget
					}
					return l.make("k")()
				})
				if err != nil {
					failed.Add(1)
					continue
				}
				if _, bytes := b.stats(); bytes > 64 {
					t.Errorf("%d bytes pinned", bytes)
				}
				if r.IntN(8) == 0 {
					b.drop(x, 0)
				}
				b.done(x)
				if r.IntN(50) == 0 {
					b.sweep(0)
				}
			}
		})
	}
	wg.Wait()
	b.stop()
	require.Empty(t, l.keys())
	_, bytes := b.stats()
	require.Zero(t, bytes)
	t.Logf("%d of 4000 failed", failed.Load())
}

// TestBudgetSpare: what is made ahead leaves half of all to others.
func TestBudgetSpare(t *testing.T) {
	t.Parallel()
	l, c := newLedger(t), newClock()
	b := newBudget[string](100, 4, l.close, c.now)
	require.True(t, b.spare("a", 50))
	require.False(t, b.spare("a", 51))
	a, err := b.get(t.Context(), "a", 40, l.make("a"))
	require.NoError(t, err)
	require.True(t, b.spare("a", 40), "it is there")
	require.True(t, b.spare("b", 10))
	require.False(t, b.spare("b", 11))
	z, err := b.get(t.Context(), "z", 1, l.make("z"))
	require.NoError(t, err)
	require.False(t, b.spare("b", 1), "half of their number is used")
	b.done(a)
	b.done(z)
	b.stop()
	require.Empty(t, l.keys())
}
