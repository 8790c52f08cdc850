package redis

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// each calls fn with a client of every master.
func (s *Store) each(ctx context.Context, fn func(context.Context, *redis.Client) error) error {
	if m, ok := s.servers.(*many); ok {
		return m.client.ForEachMaster(ctx, fn)
	}
	return fn(ctx, s.servers.(one).client)
}

// Keys returns the keys of the servers that match a pattern.
func (s *Store) Keys(ctx context.Context, pattern string) (keys []string, err error) {
	var mu sync.Mutex
	err = s.each(ctx, func(ctx context.Context, cl *redis.Client) error {
		k, err := cl.Keys(ctx, pattern).Result()
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, k...)
		return err
	})
	return keys, err
}

// Compact makes the store forget the changes so far.
func (s *Store) Compact(ctx context.Context) error {
	return s.each(ctx, func(ctx context.Context, cl *redis.Client) error {
		logs, err := cl.Keys(ctx, s.target.prefix+":*}log").Result()
		for _, k := range logs {
			cl.Del(ctx, k)
		}
		return err
	})
}

// Do sends a command to every master.
func (s *Store) Do(ctx context.Context, args ...any) error {
	return s.each(ctx, func(ctx context.Context, cl *redis.Client) error { return cl.Do(ctx, args...).Err() })
}
