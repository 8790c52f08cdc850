package swarm

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTouchMemory(t *testing.T) {
	faults := func() int64 {
		var u unix.Rusage
		require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return u.Minflt
	}
	before := faults()
	require.NoError(t, touchMemory(t.Context(), 3*touchStep))
	require.Greater(t, faults(), before+3*touchStep/(4<<20), "each huge page is faulted in once, at least")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, touchMemory(ctx, 1<<60), context.Canceled, "more than there is, which is not tried")
}
