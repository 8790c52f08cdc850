package tcp

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

func TestBusyCrossesTheWire(t *testing.T) {
	t.Parallel()
	for _, want := range []chunk.Busy{{Retry: 40 * time.Millisecond}, {Retry: time.Second, Sending: true}, {}} {
		head := http.Header{}
		busyHead(head, &want)
		var got *chunk.Busy
		require.ErrorAs(t, parseBusy(head.Get(headerRetry)), &got)
		require.Equal(t, want, *got)
	}
}

func FuzzBusy(f *testing.F) {
	for _, v := range []string{"", "5", "-1", "5 sending", "99999999999", " sending", "5  sending", "NaN"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		err := parseBusy(v)
		var busy *chunk.Busy
		if require.Error(t, err); !errors.As(err, &busy) {
			require.ErrorIs(t, err, chunk.ErrCorrupt)
			return
		}
		require.LessOrEqual(t, busy.Retry, longestRetry)
		require.GreaterOrEqual(t, busy.Retry, time.Duration(0))
	})
}
