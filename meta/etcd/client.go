package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Bounds of one connection. gRPC pings a quiet connection every 10 s at the
// soonest; a silent one that has a request under way is given up as soon as
// its bytes stay unacknowledged for pingTimeout.
const (
	pingTime    = 10 * time.Second
	pingTimeout = 3 * time.Second
	dialTimeout = 3 * time.Second
)

// connector makes the client on first use. With a password the client asks
// for a token as it is made, which must not keep a mount from starting while
// the store is down.
type connector struct {
	target target
	kv     clientv3.KV // in place of the client's own; nil: none
	watch  etcdserverpb.WatchClient

	sem chan struct{} // 1: holds the right to connect

	mu     sync.Mutex
	client *clientv3.Client
	closed bool
}

func newConnector(t target, kv clientv3.KV, watch etcdserverpb.WatchClient) (*connector, error) {
	c := &connector{target: t, kv: kv, watch: watch, sem: make(chan struct{}, 1)}
	if t.password != "" {
		return c, nil
	}
	_, err := c.get(context.Background()) // makes no connection
	return c, err
}

// get returns the client, made if there is none.
func (c *connector) get(ctx context.Context) (*clientv3.Client, error) {
	if cl, err := c.ready(); cl != nil || err != nil {
		return cl, err
	}
	select {
	case c.sem <- struct{}{}:
		defer func() { <-c.sem }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if cl, err := c.ready(); cl != nil || err != nil {
		return cl, err
	}
	cl, err := clientv3.New(c.config())
	if err != nil {
		return nil, err
	}
	if c.kv != nil {
		cl.KV = c.kv
	}
	if c.watch != nil {
		cl.Watcher = clientv3.NewWatchFromWatchClient(c.watch, cl)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = cl.Close()
		return nil, errClosed
	}
	c.client = cl
	return cl, nil
}

func (c *connector) ready() (*clientv3.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	return c.client, nil
}

func (c *connector) close() error {
	c.mu.Lock()
	cl := c.client
	c.client, c.closed = nil, true
	c.mu.Unlock()
	if cl == nil {
		return nil
	}
	if err := cl.Close(); err != nil && err != context.Canceled {
		return fmt.Errorf("close connection to %s: %w", c.target.hosts, err)
	}
	return nil
}

func (c *connector) config() clientv3.Config {
	return clientv3.Config{
		Endpoints:            c.target.endpoints,
		Username:             c.target.user,
		Password:             c.target.password,
		TLS:                  c.target.tls,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    pingTime,
		DialKeepAliveTimeout: pingTimeout,
		MaxUnaryRetries:      3, // one for a token that ran out; see retry
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: dialTimeout,
			}),
			grpc.WithChainUnaryInterceptor(failFast),
		},
	}
}

// failFastKey marks the context of a call that must not wait for a connection.
type failFastKey struct{}

// failFast lets marked calls fail at once while there is no connection; the
// client makes every call wait for one until its context ends.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if ctx.Value(failFastKey{}) != nil {
		opts = append(opts, grpc.WaitForReady(false))
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}
