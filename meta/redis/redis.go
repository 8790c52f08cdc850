// Package redis is the metadata store on Redis 6.2 or newer: one server, a
// master found by Sentinels, or a Cluster (of 7.0 or newer).
//
// A slot's records are the fields of one hash, PREFIX:{SLOT}, so that no two
// prefixes meet and a slot is one hash tag of a Cluster. The hash's empty field
// holds the slot's own facts, its version among them. Beside it there may be
// three keys: the log of its last changes (a stream that lives ten minutes
// after the last one), a sorted set of its fields once there are many (for
// listing in pages), and one of the ends of its leases. Every change is one
// script on the keys of one slot.
//
// The version of a slot is the server's clock in microseconds or, where that
// has not moved on, one more than the version before. It stays when all
// records are gone. A record's version is that of the slot at its last change.
// So a version that a fail-over or the restart of a server without its last
// seconds took back is not given out again for something else, as far as the
// clocks of master and replicas agree; and each change in the log names the
// version before it, so that a watch that was told of a change that is no more
// finds its place missing, and says meta.ErrGap, even after new changes.
//
// What Redis does not promise: it answers before a change is on a replica, so
// that a fail-over loses the last changes (those of the last second or so, or
// all since a partition began, where min-replicas-to-write is not set). A
// master that was deposed and does not know it yet answers reads with what it
// has. Leases are kept by the clock of whichever server is master. A server
// that evicts keys without an end (maxmemory-policy allkeys-...) loses names.
//
// The package owns the connections and the translation, and knows nothing of
// what records mean.
package redis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/storeurl"
)

// Defaults of Options.
const (
	DefaultReadTimeout  = 3 * time.Second
	DefaultWriteTimeout = 10 * time.Second
	DefaultPatience     = time.Second
)

// Options bound what a call may take when its context does not end sooner.
type Options struct {
	ReadTimeout  time.Duration // until a silent store counts as unreachable
	WriteTimeout time.Duration
	// Patience is how long a call is tried again that the store has refused
	// for now, or that found no connection.
	Patience time.Duration
	// Access is what the URL does not say of how to log in.
	Access storeurl.Access
	// Stream says where changes are kept for those who ask later what
	// happened. Zero: nowhere.
	Stream meta.StreamOptions

	// dial connects to a server's address; nil: the client does it. Tests put
	// faults between.
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (o Options) withDefaults() Options {
	if o.ReadTimeout <= 0 {
		o.ReadTimeout = DefaultReadTimeout
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = DefaultWriteTimeout
	}
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	return o
}

// Store is the metadata store on Redis. Safe for concurrent use.
type Store struct {
	target  target
	opts    Options
	servers servers
	scripts scripts
	hub     hub
	leased  sync.Map        // kind(slot) of slots that were seen with a leased record
	stream  streamWriter    // of a Cluster
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
}

var _ meta.Slots = (*Store)(nil)

// Open returns the store of a redis://, rediss://, redis+sentinel:// or
// redis+cluster:// URL. It does not wait for the store: while it is down, calls
// answer meta.ErrUnavailable. Errors are about the URL and hold no password.
func Open(_ context.Context, url string, opts Options) (*Store, error) {
	t, err := parseURL(url, opts.Access)
	if err != nil {
		return nil, err
	}
	logging.Disable() // the client's own, of the whole process, says what errors say
	if opts.Stream, err = streamOptions(opts.Stream, t.prefix); err != nil {
		return nil, err
	}
	s := &Store{target: t, opts: opts.withDefaults(), scripts: newScripts()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.servers = connect(t, s.opts)
	s.hub.feeds = make(map[string]*feed)
	s.hub.sem = make(chan struct{}, 1)
	s.stream.items = make(chan streamItem, streamQueue)
	return s, nil
}

// Close implements meta.Slots.
func (s *Store) Close() error {
	s.stream.flush()
	s.stop()
	s.hub.wg.Wait()
	if err := s.servers.close(); err != nil && !closed(err) {
		return fmt.Errorf("close connections to %s: %w", s.target.hosts, err)
	}
	return nil
}

// key returns the key of a slot's hash.
func (s *Store) key(slot meta.Slot) string { return s.target.prefix + ":{" + string(slot) + "}" }

// keys returns the keys that a script changes: hash, log, index, lease ends.
func (s *Store) keys(slot meta.Slot) []string {
	k := s.key(slot)
	return []string{k, k + "log", k + "index", k + "ends"}
}
