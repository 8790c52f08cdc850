package verbs

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// TestComplain: a provider is charged with wrong bytes unless it knows better,
// and says so in time.
func TestComplain(t *testing.T) {
	t.Parallel()
	wrong := fmt.Errorf("%w: another sum", chunk.ErrCorrupt)
	for _, c := range []struct {
		code code
		want error
	}{
		{codeOK, chunk.ErrCorrupt}, {codeOver, chunk.ErrCorrupt}, {codeNotHeld, chunk.ErrCorrupt}, {codeBusy, chunk.ErrCorrupt},
		{codeChanged, chunk.ErrSourceChanged}, {codeDamaged, chunk.ErrDamaged},
	} {
		l, provider := newTalk(t)
		done := make(chan error, 1)
		go func() { done <- l.complain(t.Context(), 7, grant{id: 7, lease: 9}, wrong) }()
		m, err := provider.receive()
		require.NoError(t, err)
		require.Equal(t, []any{giveBack{id: 7, lease: 9, use: useBad}}, m)
		require.True(t, l.hand(7, verdict{id: 7, code: c.code}))
		require.ErrorIs(t, <-done, c.want)
	}

	// One that says nothing, of whom nobody wants to know any more.
	l, provider := newTalk(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.complain(ctx, 7, grant{id: 7}, wrong) }()
	_, err := provider.receive()
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-done, chunk.ErrCorrupt)
	require.True(t, l.alive())
	require.False(t, l.hand(7, verdict{id: 7, code: codeChanged}), "nobody waits")
}

// newTalk returns a link without a queue, and the provider's end of what is
// said on it.
func newTalk(t *testing.T) (*link, *control) {
	l, provider, _ := newPipe(t)
	return l, provider
}

// newPipe is newTalk, and the link's end.
func newPipe(t *testing.T) (l *link, provider, own *control) {
	here, there := net.Pipe()
	t.Cleanup(func() { require.NoError(t, here.Close()) })
	t.Cleanup(func() { require.NoError(t, there.Close()) })
	var sent [2]atomic.Uint64
	own = newControl(here, bufio.NewReader(here), time.Minute, &sent[0])
	l = &link{
		c: &Client{cfg: ClientConfig{StallTimeout: time.Minute}}, broken: make(chan struct{}), calls: make(map[uint32]chan any), control: own,
	}
	l.out = &outbox{send: l.send, enough: l.users.usual, patience: sayAfter}
	t.Cleanup(l.out.close)
	return l, newControl(there, bufio.NewReader(there), time.Minute, &sent[1]), own
}
