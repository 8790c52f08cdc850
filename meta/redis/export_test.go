package redis

import (
	"context"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/p2pfs/p2pfs/meta"
)

// WithDial returns options of a store that connects by dial.
func (o Options) WithDial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Options {
	o.dial = dial
	return o
}

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

// Copy returns what the server has of a slot, for Paste.
func (s *Store) Copy(ctx context.Context, slot meta.Slot) (map[string]string, error) {
	out := make(map[string]string)
	for _, k := range s.keys(slot) {
		v, err := s.servers.(one).client.Dump(ctx, k).Result()
		if err == nil {
			out[k] = v
		} else if err != redis.Nil {
			return nil, err
		}
	}
	return out, nil
}

// Paste brings back what Copy returned.
func (s *Store) Paste(ctx context.Context, copied map[string]string) error {
	for k, v := range copied {
		if err := s.servers.(one).client.RestoreReplace(ctx, k, 0, v).Err(); err != nil {
			return err
		}
	}
	return nil
}
