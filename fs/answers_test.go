package fs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// What another node did first is an answer; what this node cannot do is a
// failure, and so is whatever leaves bytes unpublished at a close.
func TestOnlyFailuresAreLogged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		failed bool
	}{
		{meta.ErrNotFound, false}, {meta.ErrExist, false}, {meta.ErrStale, false}, {meta.ErrNotDir, false}, {meta.ErrIsDir, false},
		{meta.ErrNotEmpty, false}, {meta.ErrLoop, false}, {meta.ErrName, false}, {errMixed, false}, {syscall.EFBIG, false},
		{meta.ErrUnavailable, true}, {chunk.ErrNoProvider, true}, {chunk.ErrNoSpace, true}, {syscall.ENOSPC, true},
		{syscall.EIO, true}, {context.DeadlineExceeded, true},
	} {
		var out bytes.Buffer
		f := &FS{log: slog.New(slog.NewTextHandler(&out, nil))}
		err := fmt.Errorf("do it: %w", c.err)
		f.complain(t.Context(), "open", "f", err)
		require.Equal(t, c.failed, out.Len() > 0, c.err)
		out.Reset()
		f.complainOfClose(t.Context(), "close", "f", err)
		require.Contains(t, out.String(), "request failed", c.err)
	}
}
