package embedded

import (
	"context"

	"google.golang.org/grpc"
)

// endWith makes streams end when ctx does. etcd's own shutdown waits for the
// watches of other nodes, which never end by themselves, until a time-out of
// many seconds.
func endWith(ctx context.Context) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		own, cancel := context.WithCancel(ss.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return next(srv, boundStream{ss, own})
	}
}

// boundStream is a stream whose context may end before its client leaves.
type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s boundStream) Context() context.Context { return s.ctx }
