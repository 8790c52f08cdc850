package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestUnavailable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"our own time is over", fmt.Errorf("x: %w", context.DeadlineExceeded), true},
		{"no connection", status.Error(codes.Unavailable, "refused"), true},
		{"a server whose wait was over", status.Error(codes.Unknown, "context deadline exceeded"), true},
		{"the same, wrapped", fmt.Errorf("x: %w", status.Error(codes.Unknown, "context canceled")), true},
		{"too many requests", rpctypes.ErrTooManyRequests, true},
		{"something else", status.Error(codes.Unknown, "panic: context deadline exceeded"), false},
		{"compacted", rpctypes.ErrCompacted, false},
		{"no status", errors.New("context deadline exceeded"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, unavailable(tt.err))
		})
	}
}
