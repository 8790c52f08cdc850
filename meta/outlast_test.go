package meta_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
)

// A machine that was booted anew waits for its old record to run out; a double
// is told from it by its renewals.
func TestOutlastTellsARebootFromADouble(t *testing.T) {
	inBubble(func(t *testing.T) {
		const ttl = 300 * time.Millisecond
		store := memory.New()
		defer store.Close()
		c := meta.NewCatalog(store, meta.Options{})
		_, err := c.Join(t.Context(), meta.JoinOptions{Create: true})
		require.NoError(t, err)
		old := meta.NodeInfo{Node: chunk.NewNodeID(), Incarnation: 1, Name: "n", Host: "machine/boot-1", Kind: "daemon"}
		now := old
		now.Host, now.Incarnation = "machine/boot-2", 2
		require.NoError(t, c.Outlast(t.Context(), now, ttl), "nobody there")

		_, err = c.JoinNode(t.Context(), old, ttl)
		require.NoError(t, err)
		_, err = c.JoinNode(t.Context(), now, ttl)
		require.ErrorIs(t, err, meta.ErrExist)
		require.NoError(t, c.Outlast(t.Context(), now, ttl), "nobody renews it")
		_, err = c.JoinNode(t.Context(), now, ttl)
		require.NoError(t, err)

		require.Eventually(t, func() bool { // it runs out, too
			_, err := c.JoinNode(t.Context(), old, ttl)
			return err == nil
		}, 10*time.Second, ttl/10)
		m, err := c.JoinNode(t.Context(), old, ttl)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		require.ErrorIs(t, c.Outlast(t.Context(), now, ttl), meta.ErrExist, "it is renewed")
		cancel()
		require.NoError(t, <-ended)
		done, stop := context.WithCancel(t.Context())
		stop()
		require.ErrorIs(t, c.Outlast(done, now, ttl), context.Canceled)
	})(t)
}
