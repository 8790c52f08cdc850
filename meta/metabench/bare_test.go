//go:build bench

package metabench

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// flights is how many requests are under way at once, as in the catalog.
const flights = 8

func chunks(ctx context.Context, n, size int, fn func(ctx context.Context, from, to int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(flights)
	for from := 0; from < n; from += size {
		g.Go(func() error { return fn(ctx, from, min(from+size, n)) })
	}
	return g.Wait()
}

// bareRedis pipelines plain commands on one hash.
type bareRedis struct{ c goredis.UniversalClient }

const bareHash = "bare:{d}"

func newBareRedis(t *testing.T, raw string) bare {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	o := &goredis.UniversalOptions{Addrs: strings.Split(u.Host, ","), Protocol: 2, ReadTimeout: time.Minute}
	switch u.Scheme {
	case "redis+sentinel":
		o.MasterName = "main"
	case "redis+cluster":
		o.IsClusterMode = true
	}
	return &bareRedis{goredis.NewUniversalClient(o)}
}

func (b *bareRedis) put(ctx context.Context, fields, values []string) error {
	return chunks(ctx, len(fields), 1000, func(ctx context.Context, from, to int) error {
		p := b.c.Pipeline()
		for i := from; i < to; i++ {
			p.HSet(ctx, bareHash, fields[i], values[i])
		}
		_, err := p.Exec(ctx)
		return err
	})
}

func (b *bareRedis) get(ctx context.Context, field string) error {
	return b.c.HGet(ctx, bareHash, field).Err()
}

func (b *bareRedis) list(ctx context.Context) (n int, err error) {
	for cursor := uint64(0); ; {
		var page []string
		page, cursor, err = b.c.HScan(ctx, bareHash, cursor, "", 5000).Result()
		n += len(page) / 2
		if err != nil || cursor == 0 {
			return n, err
		}
	}
}

func (b *bareRedis) remove(ctx context.Context, fields []string) error {
	return chunks(ctx, len(fields), 1000, func(ctx context.Context, from, to int) error {
		p := b.c.Pipeline()
		for i := from; i < to; i++ {
			p.HDel(ctx, bareHash, fields[i])
		}
		_, err := p.Exec(ctx)
		return err
	})
}

func (b *bareRedis) cpu(ctx context.Context) (sum float64, err error) {
	one := func(ctx context.Context, c *goredis.Client) error {
		info, err := c.Info(ctx, "cpu").Result()
		for _, field := range []string{"used_cpu_user:", "used_cpu_sys:"} {
			var s float64
			_, v, _ := strings.Cut(info, field)
			_, _ = fmt.Sscan(v, &s)
			sum += s
		}
		return err
	}
	switch c := b.c.(type) {
	case *goredis.ClusterClient:
		var mu sync.Mutex
		err = c.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return one(ctx, c)
		})
	case *goredis.Client:
		err = one(ctx, c)
	}
	return sum, err
}

func (b *bareRedis) close() { _ = b.c.Close() }

// bareEtcd puts 128 keys a transaction.
type bareEtcd struct{ c *clientv3.Client }

const barePrefix = "bare/d/"

func newBareEtcd(t *testing.T, addr string) bare {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	require.NoError(t, err)
	return &bareEtcd{c}
}

func (b *bareEtcd) batches(ctx context.Context, n int, op func(i int) clientv3.Op) error {
	return chunks(ctx, n, 128, func(ctx context.Context, from, to int) error {
		ops := make([]clientv3.Op, 0, to-from)
		for i := from; i < to; i++ {
			ops = append(ops, op(i))
		}
		_, err := b.c.Txn(ctx).Then(ops...).Commit()
		return err
	})
}

func (b *bareEtcd) put(ctx context.Context, fields, values []string) error {
	return b.batches(ctx, len(fields), func(i int) clientv3.Op { return clientv3.OpPut(barePrefix+fields[i], values[i]) })
}

func (b *bareEtcd) get(ctx context.Context, field string) error {
	_, err := b.c.Get(ctx, barePrefix+field)
	return err
}

func (b *bareEtcd) list(ctx context.Context) (n int, err error) {
	end := clientv3.GetPrefixRangeEnd(barePrefix)
	for from := barePrefix; ; {
		r, err := b.c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(16_000))
		if err != nil {
			return n, err
		}
		n += len(r.Kvs)
		if !r.More {
			return n, nil
		}
		from = string(slices.Concat(r.Kvs[len(r.Kvs)-1].Key, []byte{0}))
	}
}

func (b *bareEtcd) remove(ctx context.Context, fields []string) error {
	return b.batches(ctx, len(fields), func(i int) clientv3.Op { return clientv3.OpDelete(barePrefix + fields[i]) })
}

func (b *bareEtcd) cpu(context.Context) (float64, error) { return 0, nil }

func (b *bareEtcd) close() { _ = b.c.Close() }
