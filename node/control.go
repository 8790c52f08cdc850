package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// control answers commands on this machine.
type control struct {
	nodepb.UnimplementedControlServer
	node *Node
}

// serveControl listens on the owner-only socket until ctx ends.
func (n *Node) serveControl(ctx context.Context) error {
	s := grpc.NewServer(grpc.Creds(peerCredentials{}), grpc.MaxRecvMsgSize(16<<20))
	nodepb.RegisterControlServer(s, &control{node: n})
	nodepb.RegisterEventsServer(s, &followers{node: n, ended: ctx.Done()})
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(followersBound, s.Stop)
		defer late.Stop()
		s.GracefulStop() // followers are told that this is the end
	})
	defer stop()
	if err := s.Serve(n.controlListener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve commands on %s: %w", n.cfg.RuntimeSocket, err)
	}
	return nil
}

// controlError gives an error the gRPC code that commands turn into an exit
// code; the message is what a person sees.
func controlError(err error) error {
	code := codes.Unknown
	switch {
	case err == nil:
		return nil
	case errors.Is(err, meta.ErrUnavailable):
		code = codes.Unavailable
	case errors.Is(err, meta.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, meta.ErrExist):
		code = codes.AlreadyExists
	case errors.Is(err, meta.ErrName), errors.Is(err, meta.ErrNotDir), errors.Is(err, meta.ErrIsDir):
		code = codes.InvalidArgument
	case errors.Is(err, syscall.EBUSY):
		code = codes.FailedPrecondition
	case errors.Is(err, os.ErrPermission):
		code = codes.PermissionDenied
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, errLastCopy):
		code = codes.FailedPrecondition
	case errors.Is(err, chunk.ErrNoSpace):
		code = codes.ResourceExhausted
	case errors.Is(err, chunk.ErrNoProvider), errors.Is(err, chunk.ErrStalled):
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

// Register implements the control service.
func (c *control) Register(req *nodepb.RegisterRequest, stream grpc.ServerStreamingServer[nodepb.Progress]) error {
	who, err := callerFrom(stream.Context())
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	return controlError(c.node.register(stream.Context(), who, req, stream.Send))
}

// Unregister implements the control service.
func (c *control) Unregister(ctx context.Context, req *nodepb.PathRequest) (*nodepb.UnregisterReply, error) {
	give := c.node.unregister
	if req.KeepName {
		give = c.node.release
	}
	files, err := give(ctx, string(req.Path), req.Force)
	return &nodepb.UnregisterReply{Files: files}, controlError(err)
}

// Get implements the control service.
func (c *control) Get(req *nodepb.PathRequest, stream grpc.ServerStreamingServer[nodepb.Progress]) error {
	return controlError(c.node.get(stream.Context(), string(req.Path), stream.Send))
}

// Drop implements the control service.
func (c *control) Drop(ctx context.Context, req *nodepb.PathRequest) (*nodepb.DropReply, error) {
	r, err := c.node.drop(ctx, string(req.Path), req.Force)
	return r, controlError(err)
}

// List implements the control service.
func (c *control) List(req *nodepb.ListRequest, stream grpc.ServerStreamingServer[nodepb.ListReply]) error {
	return controlError(c.node.list(stream.Context(), string(req.Path), req.Recursive, stream.Send))
}

// Stat implements the control service.
func (c *control) Stat(ctx context.Context, req *nodepb.PathRequest) (*nodepb.StatReply, error) {
	r, err := c.node.stat(ctx, string(req.Path))
	return r, controlError(err)
}

// Status implements the control service.
func (c *control) Status(context.Context, *nodepb.StatusRequest) (*nodepb.StatusReply, error) {
	return c.node.status(), nil
}

// Peers implements the control service.
func (c *control) Peers(ctx context.Context, req *nodepb.PeersRequest) (*nodepb.PeersReply, error) {
	r, err := c.node.peerList(ctx, req.All)
	return r, controlError(err)
}

// Collect implements the control service.
func (c *control) Collect(ctx context.Context, req *nodepb.CollectRequest) (*nodepb.CollectReply, error) {
	r, err := c.node.collect(ctx, req.DryRun)
	return r, controlError(err)
}

// Recover implements the control service.
func (c *control) Recover(req *nodepb.RecoverRequest, stream grpc.ServerStreamingServer[nodepb.RecoverReply]) error {
	who, err := callerFrom(stream.Context())
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	return controlError(c.node.recover(stream.Context(), who, req, stream.Send))
}

// Unmount implements the control service: it replies when the mount is gone;
// the process ends after that.
func (c *control) Unmount(ctx context.Context, req *nodepb.UnmountRequest) (*nodepb.UnmountReply, error) {
	return &nodepb.UnmountReply{}, controlError(c.node.mount.Unmount(ctx, req.Force, req.Lazy))
}
