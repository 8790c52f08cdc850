package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/meta"
)

// errClosed: the store was closed by us.
var errClosed = errors.New("the connection was closed")

// explain turns what the client answers into the words of meta. ctx is the
// caller's: its own end is not the store's fault.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("ask %s: %w", s.target.hosts, context.Canceled)
	case denied(err):
		return fmt.Errorf("%w: %s: %w", meta.ErrDenied, s.target.hosts, err)
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return fmt.Errorf("%w: %s: %w", meta.ErrGap, s.target.hosts, err)
	case unavailable(err):
		if end := meta.Ended(ctx); end != nil && !errors.Is(err, end) {
			err = fmt.Errorf("%w: %w", end, err)
		}
		return fmt.Errorf("%w: %s: %w", meta.ErrUnavailable, s.target.hosts, err)
	}
	return fmt.Errorf("ask %s: %w", s.target.hosts, err)
}

func denied(err error) bool {
	for _, e := range []error{
		rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrAuthOldRevision,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	c := code(err)
	return c == codes.Unauthenticated || c == codes.PermissionDenied
}

func unavailable(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, errClosed) {
		return true
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted:
		return true
	}
	return errors.Is(err, rpctypes.ErrTooManyRequests) || gaveUp(err)
}

// gaveUp reports whether a server says that its own wait was over, as one without
// a quorum does: that has no code.
func gaveUp(err error) bool {
	var e interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &e) { // FromError puts what wraps it into the message
		return false
	}
	s := e.GRPCStatus()
	return s.Code() == codes.Unknown &&
		(s.Message() == context.DeadlineExceeded.Error() || s.Message() == context.Canceled.Error())
}

// code returns the gRPC code of either kind of error the client returns.
func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return codes.Unknown
}
