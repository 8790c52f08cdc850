package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const dialTimeout = 3 * time.Second

// poolSize is the most connections to one server, and how many dials in a row
// may fail until only one a second is tried.
const poolSize = 64

// servers says which server has a key.
type servers interface {
	// of returns the client of the server that has a key.
	of(ctx context.Context, key string) (*redis.Client, error)
	// asked returns the client of a server that is taking keys over.
	asked(ctx context.Context, addr string) (*redis.Client, error)
	// identity tells one server that has a key from the next one.
	identity(ctx context.Context, key string) (string, error)
	// serving names all servers that have keys, as they were started.
	serving(ctx context.Context) (string, error)
	// stale says that a key was not where of said.
	stale(ctx context.Context)
	close() error
}

// connect makes no connection.
func connect(t target, o Options) servers {
	// The client's own tries would repeat changes that may have been made.
	switch t.form {
	case cluster:
		return &many{redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: t.endpoints, Username: t.user, Password: t.password, TLSConfig: t.tls, Dialer: o.dial, Protocol: 2,
			MaxRedirects: -1, MaxRetries: -1, DialTimeout: dialTimeout, DialerRetries: 1, PoolSize: poolSize, PipelinePoolSize: -1,
			ReadTimeout: o.WriteTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
			DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})}
	case sentinel:
		return one{watched: true, client: redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: t.service, SentinelAddrs: t.endpoints, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
			Username: t.user, Password: t.password, DB: t.db, TLSConfig: t.tls, Dialer: o.dial, Protocol: 2,
			MaxRetries: -1, DialTimeout: dialTimeout, DialerRetries: 1, PoolSize: poolSize, PipelinePoolSize: -1,
			ReadTimeout: o.WriteTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true, DisableIdentity: true,
		})}
	}
	return one{client: redis.NewClient(&redis.Options{
		Addr: t.endpoints[0], Username: t.user, Password: t.password, DB: t.db, TLSConfig: t.tls, Dialer: o.dial, Protocol: 2,
		MaxRetries: -1, DialTimeout: dialTimeout, DialerRetries: 1, PoolSize: poolSize, PipelinePoolSize: -1,
		ReadTimeout: o.WriteTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: true,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}
}

// one is a server, or a master and its replicas, that has all keys.
type one struct {
	client  *redis.Client
	watched bool // by Sentinels: the master may change
}

// identity is what a server calls itself since it was started.
func (o one) identity(ctx context.Context, _ string) (string, error) {
	if !o.watched {
		return "", nil
	}
	info, err := o.client.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	_, id, _ := strings.Cut(info, "run_id:")
	id, _, _ = strings.Cut(id, "\r")
	return id, nil
}

func (o one) serving(ctx context.Context) (string, error) { return started(ctx, o.client) }

// started names a server and the history it has: both change when it is started
// again, and the latter when it takes over.
func started(ctx context.Context, c *redis.Client) (string, error) {
	pipe := c.Pipeline()
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	if _, err := pipe.Exec(ctx); err != nil {
		return "", err
	}
	field := func(info *redis.StringCmd, name string) string {
		_, v, _ := strings.Cut(info.Val(), name+":")
		v, _, _ = strings.Cut(v, "\r")
		return v
	}
	return field(server, "run_id") + " " + field(replication, "master_replid"), nil
}

func (o one) of(context.Context, string) (*redis.Client, error)    { return o.client, nil }
func (o one) asked(context.Context, string) (*redis.Client, error) { return o.client, nil }
func (o one) stale(context.Context)                                {}
func (o one) close() error                                         { return o.client.Close() }

// many is a Cluster.
type many struct{ client *redis.ClusterClient }

func (m *many) of(ctx context.Context, key string) (*redis.Client, error) {
	return m.client.MasterForKey(ctx, key)
}

func (m *many) identity(ctx context.Context, key string) (string, error) {
	cl, err := m.of(ctx, key)
	if err != nil {
		return "", err
	}
	return cl.Options().Addr, nil
}

func (m *many) serving(ctx context.Context) (string, error) {
	var mu sync.Mutex
	var all []string
	err := m.client.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		s, err := started(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, s)
		return err
	})
	slices.Sort(all)
	return strings.Join(all, ","), err
}

func (m *many) asked(ctx context.Context, addr string) (found *redis.Client, err error) {
	ch := make(chan *redis.Client, 1)
	err = m.client.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		if c.Options().Addr == addr {
			ch <- c
		}
		return nil
	})
	select {
	case found = <-ch:
		return found, nil
	default:
	}
	if err == nil {
		err = fmt.Errorf("%w: no server at %s is known in the Cluster", errNotNow, addr)
	}
	return nil, err
}

func (m *many) stale(ctx context.Context) { m.client.ReloadState(ctx) }
func (m *many) close() error              { return m.client.Close() }
