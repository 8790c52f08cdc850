package meta

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A value that is set right after another is the one that is found.
func TestNameCacheKeepsTheLastValue(t *testing.T) {
	t.Parallel()
	c, err := newNameCache()
	require.NoError(t, err)
	defer c.Close()
	for i := range 1000 {
		key := strconv.Itoa(i)
		for gen := range uint64(3) {
			c.Set(key, known{gen: gen}, 1)
		}
	}
	found := 0
	for i := range 1000 {
		k, ok := c.Get(strconv.Itoa(i))
		if ok {
			found++
			require.Equal(t, uint64(2), k.gen, "name %d", i)
		}
	}
	require.NotZero(t, found)
}

// When Set returns, the value has got in or was refused: nothing gets in later,
// after a Del.
func TestNameCacheSetsForGood(t *testing.T) {
	t.Parallel()
	c, err := newNameCache()
	require.NoError(t, err)
	defer c.Close()
	for i := range 1000 {
		key := strconv.Itoa(i)
		c.Set(key, known{gen: 1}, 1)
		_, now := c.Get(key)
		c.cache.Wait()
		_, then := c.Get(key)
		require.Equal(t, now, then, "name %d", i)
	}
}
