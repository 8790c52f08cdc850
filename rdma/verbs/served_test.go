package verbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// TestLeasesAreBounded: a reader that gives none back gets no more.
func TestLeasesAreBounded(t *testing.T) {
	t.Parallel()
	l := &served{h: &Handler{cfg: HandlerConfig{TTL: time.Hour}}, leases: make(map[uint64]*lent)}
	var first *lent
	for range maxLeases {
		x := new(lent)
		_, err := l.keep(x)
		require.NoError(t, err)
		defer x.timer.Stop()
		first = x
	}
	x := new(lent)
	_, err := l.keep(x)
	require.ErrorIs(t, err, errLeases)
	require.Nil(t, x.timer)
	for id, y := range l.leases {
		if y == first {
			delete(l.leases, id)
		}
	}
	_, err = l.keep(x)
	require.NoError(t, err)
	defer x.timer.Stop()
	require.EqualValues(t, maxLeases+1, l.h.granted.Load())
	l.failed = true
	_, err = l.keep(new(lent))
	require.ErrorIs(t, err, chunk.ErrClosed)
}

func TestAnAskForNothingIsRefused(t *testing.T) {
	t.Parallel()
	v := verdictOf(7, errNothing)
	require.Equal(t, codeRefused, v.code)
	require.ErrorIs(t, errorOf(v), chunk.ErrRefused)
}
