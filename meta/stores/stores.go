// Package stores opens a metadata store by its URL. It stands beside meta
// because the stores import meta.
package stores

import (
	"context"
	"fmt"
	"strings"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/redis"
	"github.com/p2pfs/p2pfs/meta/storeurl"
)

// Options of a store, whichever it is.
type Options struct {
	// Access is what the URL does not say of how to log in.
	Access storeurl.Access
	// Stream is for Redis; other stores have no use for it.
	Stream meta.StreamOptions
}

// Open returns the store of a URL: etcd://, etcds://, redis://, rediss://,
// redis+sentinel://, redis+cluster:// or memory://. It does not wait for the
// store; errors are about the URL and hold no password.
func Open(ctx context.Context, url string, opts Options) (meta.Slots, error) {
	scheme, _, ok := strings.Cut(url, "://")
	if !ok {
		return nil, fmt.Errorf("metadata URL %q has no scheme; want etcd://HOST:PORT/PREFIX", meta.RedactURL(url))
	}
	switch scheme {
	case "etcd", "etcds":
		// A nil *etcd.Store must not become a Slots that is not nil.
		s, err := etcd.Open(ctx, url, etcd.Options{Access: opts.Access})
		if err != nil {
			return nil, err
		}
		return s, nil
	case "memory":
		return memory.New(), nil
	case "redis", "rediss", "redis+sentinel", "redis+cluster":
		s, err := redis.Open(ctx, url, redis.Options{Access: opts.Access, Stream: opts.Stream})
		if err != nil {
			return nil, err
		}
		return s, nil
	case "http", "https":
		return nil, fmt.Errorf("metadata URL %q: for an etcd cluster write etcd:// (or etcds:// for TLS)", meta.RedactURL(url))
	}
	return nil, fmt.Errorf("metadata URL %q: unknown scheme %s://; use etcd://HOST:PORT/PREFIX", meta.RedactURL(url), scheme)
}
