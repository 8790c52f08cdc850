package node

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

// Warm implements the control service.
func (c *control) Warm(req *nodepb.WarmRequest, stream grpc.ServerStreamingServer[nodepb.WarmReply]) error {
	err := c.node.warm(stream.Context(), req, stream.Send)
	if errors.Is(err, errRequest) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return controlError(err)
}

// Pin implements the control service.
func (c *control) Pin(ctx context.Context, req *nodepb.PinRequest) (*nodepb.PinReply, error) {
	r, err := c.node.pin(ctx, req)
	return r, controlError(err)
}

// Trace implements the control service.
func (c *control) Trace(req *nodepb.TraceRequest, stream grpc.ServerStreamingServer[nodepb.TraceReply]) error {
	return controlError(c.node.traceFile(stream.Context(), req, stream.Send))
}
