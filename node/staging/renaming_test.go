package staging

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that closes a file and renames it at once does so before the kernel
// has told that the file is not open any more: that may come at any time of the
// rename, which publishes the file all the same.
func TestTheLastCloseComesWhileAFileIsRenamed(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ { // the request to the store before which it comes
		r := newRig(t)
		r.write("f", []byte("what was there"))
		want := bytes.Repeat([]byte("new"), block)
		w := r.create("f.incomplete", true)
		r.put(w, want, 0)
		require.NoError(t, w.Publish(t.Context()))
		var mu sync.Mutex
		calls := 0
		r.faults.Gate(func(context.Context, string) {
			mu.Lock()
			calls++
			now := calls == at
			mu.Unlock()
			if now {
				w.Close()
			}
		})
		e, err := r.rename("f.incomplete", "f")
		r.faults.Gate(nil)
		mu.Lock()
		reached := calls >= at
		mu.Unlock()
		if !reached {
			w.Close()
		}
		require.NoError(t, err)
		require.EqualValues(t, len(want), e.Size)
		require.True(t, bytes.Equal(want, r.stored("f")), "closed before request %d", at)
		require.Empty(t, r.lost(), "closed before request %d", at)
		r.area.mu.Lock()
		require.Empty(t, r.area.files, "closed before request %d", at)
		require.Empty(t, r.area.using, "closed before request %d", at)
		r.area.mu.Unlock()
		if !reached {
			require.Greater(t, at, 2)
			return
		}
	}
}
