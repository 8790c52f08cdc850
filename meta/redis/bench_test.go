package redis_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	bare "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// BenchmarkRedis tells what the store costs over the server's own commands, on
// records of an entry's size.
func BenchmarkRedis(b *testing.B) {
	srv := metatest.StartRedis(b)
	s, err := redis.Open(b.Context(), srv.URL("x"), redis.Options{})
	require.NoError(b, err)
	defer s.Close()
	cl := bare.NewClient(&bare.Options{Addr: srv.Addr(), Protocol: 2})
	defer cl.Close()
	const n = 100_000
	value := bytes.Repeat([]byte("v"), 150)
	name := func(i int) string { return fmt.Sprintf("model-%06d.safetensors", i) }

	b.Run("write 100,000/bare", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, cl.Del(b.Context(), "bare").Err())
			for i := 0; i < n; i += meta.MaxSets {
				pipe := cl.Pipeline()
				for j := range meta.MaxSets {
					pipe.HSet(b.Context(), "bare", name(i+j), value)
				}
				_, err := pipe.Exec(b.Context())
				require.NoError(b, err)
			}
		}
	})
	b.Run("write 100,000/store", func(b *testing.B) {
		for k := 0; b.Loop(); k++ {
			for i := 0; i < n; i += meta.MaxSets {
				var sets []meta.Set
				var conds []meta.If
				for j := range meta.MaxSets {
					sets = append(sets, meta.Set{Field: name(i + j), Value: value})
					conds = append(conds, meta.If{Field: name(i + j), Absent: true})
				}
				_, err := s.Apply(b.Context(), meta.Slot(fmt.Sprintf("d/%x", k)), conds, sets)
				require.NoError(b, err)
			}
		}
	})
	b.Run("list 100,000/bare", func(b *testing.B) {
		for b.Loop() {
			got := 0
			for cursor, more := uint64(0), true; more; more = cursor != 0 {
				var page []string
				page, cursor, err = cl.HScan(b.Context(), "bare", cursor, "", 4000).Result()
				require.NoError(b, err)
				got += len(page) / 2
			}
			require.GreaterOrEqual(b, got, n)
		}
	})
	b.Run("list 100,000/store", func(b *testing.B) {
		for b.Loop() {
			got := 0
			for next, more := "", true; more; more = next != "" {
				p, err := s.List(b.Context(), "d/0", next, 4000)
				require.NoError(b, err)
				got, next = got+len(p.Records), p.Next
			}
			require.Equal(b, n, got)
		}
	})
	b.Run("read/bare", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, cl.HGet(b.Context(), "bare", name(7)).Err())
		}
	})
	b.Run("read/store", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Get(b.Context(), meta.Key{Slot: "d/0", Field: name(7)}, meta.Key{Slot: "d/0"})
			require.NoError(b, err)
		}
	})
	b.Run("change one/bare", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, cl.HSet(b.Context(), "bare", name(7), value).Err())
		}
	})
	b.Run("change one/store", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Apply(b.Context(), "d/0", []meta.If{{Field: name(7), Present: true}}, []meta.Set{{Field: name(7), Value: value}})
			require.NoError(b, err)
		}
	})
	info, err := cl.Info(b.Context(), "memory").Result()
	require.NoError(b, err)
	for _, line := range strings.Split(info, "\r\n") {
		if strings.HasPrefix(line, "used_memory_human") {
			b.Log(line)
		}
	}
}
