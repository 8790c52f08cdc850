package embedded

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
)

// direct reads and writes by function calls. A connection to the server in the
// same process costs more than what the server does to answer. Close waits for
// calls under way: the server must not lose its database below them.
type direct struct {
	etcdserverpb.KVClient
	life context.Context // ends with the server

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// Direct returns access to the server for this process. After Close its calls
// fail as those to a server that is down. It only reads and does transactions.
func (s *Server) Direct() clientv3.KV { return clientv3.NewKVFromKVClient(s.direct, nil) }

func newDirect(life context.Context, s *etcdserver.EtcdServer) *direct {
	return &direct{life: life, KVClient: adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(s))}
}

// Range implements etcdserverpb.KVClient.
func (d *direct) Range(ctx context.Context, in *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	ctx, done, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return d.KVClient.Range(ctx, in)
}

// Txn implements etcdserverpb.KVClient.
func (d *direct) Txn(ctx context.Context, in *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	ctx, done, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return d.KVClient.Txn(ctx, in)
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
