package cache

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A change that would make a file longer than an object can be is refused at
// once, however near to the largest number its end is, and changes nothing.
func TestStagedLimit(t *testing.T) {
	t.Parallel()
	const most = bs * math.MaxInt32
	c := openCache(t, config(t))
	s := staged(t, c, 1, nil)
	require.NoError(t, s.WriteAt(t.Context(), []byte("abc"), 0))
	used := c.Stats().UsedBytes
	for name, do := range map[string]func() error{
		"write over the limit":  func() error { return s.WriteAt(t.Context(), []byte("xy"), most-1) },
		"write at the end":      func() error { return s.WriteAt(t.Context(), []byte("x"), math.MaxInt64-1) },
		"write beyond the end":  func() error { return s.WriteAt(t.Context(), []byte("xy"), math.MaxInt64-1) },
		"cut over the limit":    func() error { return s.Truncate(t.Context(), most+1) },
		"cut at the end":        func() error { return s.Truncate(t.Context(), math.MaxInt64) },
		"allocate at the end":   func() error { return s.Allocate(t.Context(), math.MaxInt64-1, 1, 0) },
		"allocate everything":   func() error { return s.Allocate(t.Context(), 0, math.MaxInt64, unix.FALLOC_FL_KEEP_SIZE) },
		"zeros over everything": func() error { return s.Allocate(t.Context(), 0, math.MaxInt64, unix.FALLOC_FL_ZERO_RANGE) },
	} {
		done := make(chan error, 1)
		go func() { done <- do() }()
		select {
		case err := <-done:
			require.ErrorIs(t, err, unix.EFBIG, name)
		case <-time.After(2 * time.Minute):
			require.FailNow(t, "no end to it", name)
		}
	}
	require.Equal(t, "abc", string(readStaged(t, s)))
	require.Equal(t, used, c.Stats().UsedBytes)
	require.NoError(t, s.Allocate(t.Context(), 1, most, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE))
	require.Equal(t, "a\x00\x00", string(readStaged(t, s)))

	require.NoError(t, s.Truncate(t.Context(), most))
	require.ErrorIs(t, s.WriteAt(t.Context(), []byte("x"), most), unix.EFBIG)
	_, err := s.Append(t.Context(), []byte("x"))
	require.ErrorIs(t, err, unix.EFBIG)
	require.Equal(t, int64(most), s.Size())
	require.NoError(t, s.Truncate(t.Context(), 3))
}
