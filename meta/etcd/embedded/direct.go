package embedded

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
)

// direct reads, writes and watches by function calls. A connection to the
// server in the same process costs more than what the server does to answer.
// Close waits for calls under way: the server must not lose its database below
// them.
type direct struct {
	etcdserverpb.KVClient
	server *etcdserver.EtcdServer
	watch  etcdserverpb.WatchServer
	life   context.Context // ends with the server

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// Direct returns access to the server for this process. After Close its calls
// fail as those to a server that is down. It only reads and does transactions.
func (s *Server) Direct() clientv3.KV { return clientv3.NewKVFromKVClient(s.direct, nil) }

// Watcher is Direct for watches. Those under way end with the server.
func (s *Server) Watcher() etcdserverpb.WatchClient { return watcher{s.direct} }

func newDirect(life context.Context, s *etcdserver.EtcdServer) *direct {
	return &direct{
		KVClient: adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(s)),
		server:   s, watch: v3rpc.NewWatchServer(s), life: life,
	}
}

// Range implements etcdserverpb.KVClient.
func (d *direct) Range(ctx context.Context, in *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	ctx, done, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if d.current() {
		in.Serializable = true
	}
	return d.KVClient.Range(ctx, in)
}

// Txn implements etcdserverpb.KVClient.
func (d *direct) Txn(ctx context.Context, in *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	ctx, done, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if txn.IsTxnReadonly(in) && d.current() {
		for _, ops := range [][]*etcdserverpb.RequestOp{in.Success, in.Failure} {
			for _, op := range ops {
				op.GetRequestRange().Serializable = true
			}
		}
	}
	return d.KVClient.Txn(ctx, in)
}

// current reports whether the server has applied all that it has committed.
// It is the only member, so that a read of what it has is then linearizable
// without a turn of the log, which may be waiting for the disk: a change is
// answered, and told to watches, only after it was committed.
func (d *direct) current() bool {
	return d.server.AppliedIndex() >= d.server.CommittedIndex()
}

// watcher is the watches of a direct.
type watcher struct{ d *direct }

// Watch implements etcdserverpb.WatchClient.
func (w watcher) Watch(ctx context.Context, _ ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	ctx, done, err := w.d.enter(ctx)
	if err != nil {
		return nil, err
	}
	return adapter.WatchServerToWatchClient(countedWatch{w.d.watch, done}).Watch(ctx)
}

// countedWatch tells when its one stream has ended.
type countedWatch struct {
	etcdserverpb.WatchServer
	done func()
}

// Watch implements etcdserverpb.WatchServer.
func (w countedWatch) Watch(s etcdserverpb.Watch_WatchServer) error {
	defer w.done()
	return w.WatchServer.Watch(s)
}

func (d *direct) enter(ctx context.Context) (_ context.Context, done func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, rpctypes.ErrGRPCStopped
	}
	d.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		d.calls.Done()
	}, nil
}

// close ends the calls; life has ended.
func (d *direct) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.calls.Wait()
}
