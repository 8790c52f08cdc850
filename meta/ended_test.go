package meta_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// overdue is a context whose deadline has passed, and whose timer is late.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }

func TestEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	require.NoError(t, meta.Ended(ctx))
	require.NoError(t, meta.Ended(t.Context()))
	require.ErrorIs(t, meta.Ended(overdue{ctx}), context.DeadlineExceeded)
	cancel()
	require.ErrorIs(t, meta.Ended(ctx), context.Canceled)
}
