package meta

import (
	"fmt"

	"github.com/dgraph-io/ristretto/v2"
)

// nameCache is the cache of single names. What was set last is what it answers
// with, or nothing. The methods are safe for concurrent use; calls for one key
// that may overlap are in no order.
type nameCache struct {
	cache *ristretto.Cache[string, known]
}

// newNameCache starts the goroutines of a cache; Close ends them.
func newNameCache() (*nameCache, error) {
	c, err := ristretto.NewCache(&ristretto.Config[string, known]{
		NumCounters: namesCounters, MaxCost: namesBytes, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of names: %w", err)
	}
	return &nameCache{c}, nil
}

func (c *nameCache) Get(key string) (known, bool) { return c.cache.Get(key) }

// Set may drop what was there and not take the new value. The key is deleted
// first: of two values that are set before the first has got in, ristretto would
// go on with the first. Set waits until the value has got in or was refused, some
// microseconds: one that gets in after a later Del would be found until
// ristretto's own goroutine has come to that.
func (c *nameCache) Set(key string, value known, cost int64) {
	c.cache.Del(key)
	c.cache.Set(key, value, cost)
	c.cache.Wait()
}

func (c *nameCache) Del(key string) { c.cache.Del(key) }

// Close waits for the goroutines.
func (c *nameCache) Close() { c.cache.Close() }
