package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/staging"
	"github.com/p2pfs/p2pfs/rdma"
)

// Node is one running node. Start makes it, Wait waits for its end, Close
// ends it. Safe for concurrent use.
type Node struct {
	cfg         Config
	log         *slog.Logger
	id          chunk.NodeID
	addrs       map[string]string // told to other nodes
	chunkSize   int64
	store       meta.StoreInfo
	started     time.Time
	auth        rdma.Authorizer
	incarnation uint64

	storage *storage
	catalog *meta.Catalog
	view    *meta.View
	cache   *cache.Cache
	engine  *chunk.Engine
	traffic rdma.Counters // over TCP
	rdma    *rdmaSide     // nil: all goes over TCP
	noRDMA  string        // why
	trace   trace
	// rdmaTraffic counts what moved by RDMA.
	rdmaTraffic rdma.Counters
	siblings    *siblings
	peers       *peers
	registry    *registry
	restorer    *restorer
	member      atomic.Pointer[meta.Membership] // once this node has joined
	binder      *binder
	facts       *facts
	source      *sources
	mount       *fs.FS
	mounted     atomic.Pointer[fs.FS] // the same, for parts that started before it
	staging     atomic.Pointer[staging.Area]

	leaving    leaving
	interest   interest
	sends      chunk.Sends
	fetching   atomic.Pointer[chunk.Engine] // engine, for parts that started before it
	collection *collection
	relief     *relief
	rest       *rest
	roll       roll
	// publishes says that an object is being published: it has no name yet.
	// usesSet says that objects are published into a set, or may be soon. Nil:
	// nothing is written here.
	publishes func(chunk.ObjectID) bool
	usesSet   func(chunk.SetID) bool

	controlListener net.Listener
	httpListener    net.Listener

	closers  []closer // in the order of making; closed in reverse
	stop     context.CancelFunc
	work     *errgroup.Group
	closing  atomic.Bool
	finished chan struct{}
	result   error
}

// closer is one part and how to end it.
type closer struct {
	what  string
	close func(context.Context) error
}

// Info is what the program tells when a node is ready.
type Info struct {
	ID         chunk.NodeID
	Name       string
	Mountpoint string
	MetaURL    string // without a password
	Embedded   bool   // the store runs in this process
	NewCluster bool   // the store was empty
	Listen     string // HOST:PORT told to other nodes
	HTTP       string // HOST:PORT of metrics and the status page; empty: none
	Warnings   []string
}

// Info describes the running node.
func (n *Node) Info() Info {
	i := Info{
		ID: n.id, Name: n.cfg.Name, Mountpoint: n.cfg.Mountpoint, MetaURL: n.storage.redacted,
		Embedded: n.storage.embedded != nil, NewCluster: n.store.Created, Listen: n.addrs["tcp"],
		Warnings: n.warnings(),
	}
	if n.httpListener != nil {
		i.HTTP = n.httpListener.Addr().String()
	}
	return i
}

// Wait returns when the node has ended: unmounted (nil), closed (nil), or
// failed (why).
func (n *Node) Wait() error {
	<-n.finished
	return n.result
}

// Close ends the node in order: it leaves the cluster, unmounts, stops
// serving, and closes what is open. It returns within ctx's bound; what was
// fetched and registered is kept.
func (n *Node) Close(ctx context.Context) error {
	first := n.closing.CompareAndSwap(false, true)
	var errs []error
	if first {
		// The mount goes first, while its readers can still be answered.
		if n.mount != nil {
			errs = append(errs, n.mount.Unmount(ctx, true, true))
		}
	}
	select {
	case <-n.finished:
		errs = append(errs, n.result)
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("shutdown did not end in time: %w", context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

// run watches over the parts: when the mount ends, or a part fails, the rest
// is ended too.
func (n *Node) run(ctx context.Context) {
	defer close(n.finished)
	n.work.Go(func() error {
		n.mount.Wait()
		n.stop()
		return nil
	})
	<-ctx.Done()
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownBound)
	defer cancel()
	errs := []error{n.mount.Unmount(bound, true, true), n.work.Wait(), n.closeParts(bound)}
	n.result = errors.Join(errs...)
}

// shutdownBound is the most an orderly shutdown takes.
const shutdownBound = 15 * time.Second

func (n *Node) onClose(what string, fn func(context.Context) error) {
	n.closers = append(n.closers, closer{what, fn})
}

// closeParts closes what was made, the last made first.
func (n *Node) closeParts(ctx context.Context) error {
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		c := n.closers[i]
		if err := c.close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", c.what, err))
		}
	}
	n.closers = nil
	return errors.Join(errs...)
}

// plain adapts a Close without a bound.
func plain(fn func() error) func(context.Context) error {
	return func(context.Context) error { return fn() }
}
