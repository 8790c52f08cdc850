package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/stretchr/testify/require"
)

const bs = chunk.MinBlockSize

// childEnv names what a re-executed test binary does instead of testing.
const childEnv = "P2PFS_CACHE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		os.Exit(runChild(role))
	}
	leaktest.Main(m)
}

// runChild plays one part in another process.
func runChild(role string) int {
	var err error
	switch role {
	case "put":
		err = childPut()
	case "hold":
		err = childHold()
	case "publish":
		err = childPublish()
	case "serve":
		err = childServe()
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// object returns a new object of that many bytes.
func object(size int64) chunk.Object {
	return chunk.Object{ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: size, ChunkSize: 4 * bs, BlockSize: bs}
}

// content returns the bytes of a block: no two blocks of any objects agree.
func content(o chunk.Object, block int) []byte {
	b := make([]byte, o.Block(block).Len)
	seed := binary.LittleEndian.Uint64(o.ID[:8])
	r := rand.New(rand.NewPCG(seed, uint64(block)))
	for i := 0; i < len(b); i += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], r.Uint64())
		copy(b[i:], w[:])
	}
	b[0] |= 1 // never all zero
	return b
}

func wholeContent(o chunk.Object) []byte {
	var b []byte
	for i := range o.Blocks() {
		b = append(b, content(o, i)...)
	}
	return b
}

func put(t testing.TB, f chunk.File, o chunk.Object, blocks ...int) {
	t.Helper()
	for _, b := range blocks {
		data := content(o, b)
		require.NoError(t, f.Put(b, data, chunk.Sum(data)))
	}
}

func putAll(t testing.TB, f chunk.File, o chunk.Object) {
	t.Helper()
	for b := range o.Blocks() {
		put(t, f, o, b)
	}
}

// checkHeld requires that every block that counts as present is right, and
// returns how many there are.
func checkHeld(t testing.TB, f chunk.File, o chunk.Object) int {
	t.Helper()
	n := 0
	for b := range o.Blocks() {
		if !f.Has(b) {
			continue
		}
		n++
		want := content(o, b)
		got := make([]byte, len(want))
		_, err := f.Reader().ReadAt(got, o.Block(b).Off)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "block %d of %s differs", b, o.ID)
		sum, ok := f.Sum(b)
		require.True(t, ok)
		require.Equal(t, chunk.Sum(want), sum)
	}
	require.Equal(t, n, f.Have().Count())
	require.Equal(t, n == o.Blocks(), f.Complete())
	return n
}

// config is for a cache on its own directory that is never short of room.
func config(t testing.TB) Config {
	t.Helper()
	return Config{
		Roots:     []string{filepath.Join(t.TempDir(), "cache")},
		FreeSpace: Reserve{Bytes: -1},
		Log:       slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}

func openCache(t testing.TB, cfg Config) *Cache {
	t.Helper()
	c, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func openFile(t testing.TB, c *Cache, o chunk.Object) chunk.File {
	t.Helper()
	f, err := c.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// fill makes a complete object here and leaves it unused.
func fill(t testing.TB, c *Cache, o chunk.Object) {
	t.Helper()
	f, err := c.Open(t.Context(), o)
	require.NoError(t, err)
	putAll(t, f, o)
	require.True(t, f.Complete())
	require.NoError(t, f.Close())
}

// clock is a time that moves when told to.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Unix(1_700_000_000, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// running starts Run and returns what ends it.
func running(t testing.TB, c *Cache) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
		})
	}
	t.Cleanup(stop)
	return stop
}

// readBlock reads a served block the way a transport does.
func readBlock(t testing.TB, b chunk.Block) []byte {
	t.Helper()
	if b.Zero {
		require.Nil(t, b.File)
		require.NoError(t, b.Release())
		return make([]byte, b.Len)
	}
	got := make([]byte, b.Len)
	_, err := b.File.ReadAt(got, b.Off)
	require.NoError(t, err)
	require.NoError(t, b.Release())
	return got
}
