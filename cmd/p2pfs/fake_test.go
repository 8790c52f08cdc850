package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/node"
	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/running"
)

// fakeControl answers commands with what the test wants.
type fakeControl struct {
	nodepb.UnimplementedControlServer
	status   *nodepb.StatusReply
	items    []*nodepb.Item
	stat     *nodepb.StatReply
	progress []*nodepb.Progress
	peers    *nodepb.PeersReply
	waiting  []*nodepb.RecoverReply
	warm     []*nodepb.WarmReply
	traced   []*nodepb.TraceReply
	fail     error
	unmount  func() error

	mu   sync.Mutex
	last any // the last request
}

func (c *fakeControl) got(r any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = r
}

func (c *fakeControl) lastRequest() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *fakeControl) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	lis, err := running.Listen(socket)
	require.NoError(t, err)
	return c.serveOn(lis)
}

func (c *fakeControl) serveOn(lis net.Listener) (stop func()) {
	s := grpc.NewServer()
	nodepb.RegisterControlServer(s, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(lis) // ends by Stop
	}()
	return func() {
		s.Stop()
		<-done
	}
}

func (c *fakeControl) Status(_ context.Context, r *nodepb.StatusRequest) (*nodepb.StatusReply, error) {
	c.got(r)
	return c.status, c.fail
}

func (c *fakeControl) Register(r *nodepb.RegisterRequest, s grpc.ServerStreamingServer[nodepb.Progress]) error {
	c.got(r)
	return c.send(s)
}

func (c *fakeControl) Get(r *nodepb.PathRequest, s grpc.ServerStreamingServer[nodepb.Progress]) error {
	c.got(r)
	return c.send(s)
}

func (c *fakeControl) send(s grpc.ServerStreamingServer[nodepb.Progress]) error {
	for _, p := range c.progress {
		if err := s.Send(p); err != nil {
			return err
		}
	}
	return c.fail
}

func (c *fakeControl) Unregister(_ context.Context, r *nodepb.PathRequest) (*nodepb.UnregisterReply, error) {
	c.got(r)
	return &nodepb.UnregisterReply{Files: 3}, c.fail
}

func (c *fakeControl) List(r *nodepb.ListRequest, s grpc.ServerStreamingServer[nodepb.ListReply]) error {
	c.got(r)
	for _, it := range c.items { // a page each
		if err := s.Send(&nodepb.ListReply{Items: []*nodepb.Item{it}}); err != nil {
			return err
		}
	}
	return c.fail
}

func (c *fakeControl) Stat(_ context.Context, r *nodepb.PathRequest) (*nodepb.StatReply, error) {
	c.got(r)
	return c.stat, c.fail
}

func (c *fakeControl) Drop(_ context.Context, r *nodepb.PathRequest) (*nodepb.DropReply, error) {
	c.got(r)
	return &nodepb.DropReply{Files: 1, FreedBytes: 5 << 20}, c.fail
}

func (c *fakeControl) Peers(_ context.Context, r *nodepb.PeersRequest) (*nodepb.PeersReply, error) {
	c.got(r)
	return c.peers, c.fail
}

func (c *fakeControl) Unmount(_ context.Context, r *nodepb.UnmountRequest) (*nodepb.UnmountReply, error) {
	c.got(r)
	if c.unmount != nil {
		return &nodepb.UnmountReply{}, c.unmount()
	}
	return &nodepb.UnmountReply{}, c.fail
}

// fakeNode is a daemon without a mount.
type fakeNode struct {
	cfg   node.Config
	how   string
	ended chan struct{}
	once  sync.Once
	stop  func()
}

func startFake(cfg node.Config, how string) (daemon, error) {
	n := &fakeNode{cfg: cfg, how: how, ended: make(chan struct{})}
	lis, err := running.Listen(cfg.RuntimeSocket)
	if err != nil {
		return nil, err
	}
	ctl := &fakeControl{status: &nodepb.StatusReply{Node: &nodepb.StatusReply_Node{Name: cfg.Name, Pid: int64(os.Getpid())}}}
	ctl.unmount = func() error {
		if how == "busy" {
			return status.Error(codes.FailedPrecondition, fmt.Sprintf("%s is in use by cat (42)", cfg.Mountpoint))
		}
		n.end()
		return nil
	}
	n.stop = ctl.serveOn(lis)
	return n, nil
}

func (n *fakeNode) end() { n.once.Do(func() { close(n.ended) }) }

func (n *fakeNode) Info() node.Info {
	url := n.cfg.MetaURL
	if url == "" {
		url = "etcd://" + n.cfg.MetaListen
	}
	return node.Info{
		Name: n.cfg.Name, Mountpoint: n.cfg.Mountpoint, MetaURL: url, Embedded: n.cfg.MetaURL == "", NewCluster: true,
		Listen: n.cfg.Listen, Warnings: []string{"a warning"},
	}
}

func (n *fakeNode) Wait() error {
	<-n.ended
	n.stop()
	return nil
}

func (n *fakeNode) Close(ctx context.Context) error {
	if n.how == "stuck" {
		<-ctx.Done()
		return ctx.Err()
	}
	n.end()
	return n.Wait()
}
