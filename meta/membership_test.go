package meta_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
)

// TestAnOldStartLeavesANewOneAlone (K6): what a node's earlier start does late, to
// renew its record or to leave, does not touch the record of a later one.
func TestAnOldStartLeavesANewOneAlone(t *testing.T) {
	inBubble(func(t *testing.T) {
		slots := memory.New()
		t.Cleanup(func() { _ = slots.Close() })
		c := meta.NewCatalog(slots, meta.Options{})
		_, err := c.Join(t.Context(), meta.JoinOptions{Create: true})
		require.NoError(t, err)
		info := meta.NodeInfo{Node: chunk.NodeID{1}, Incarnation: 1, Name: "n", Host: "h"}
		old, err := c.JoinNode(t.Context(), info, 300*time.Millisecond)
		require.NoError(t, err)
		info.Incarnation = 2
		later, err := c.JoinNode(t.Context(), info, time.Hour)
		require.NoError(t, err)

		require.ErrorIs(t, old.Run(t.Context()), meta.ErrExist)
		require.NoError(t, old.Leave(t.Context()))
		got, err := c.Node(t.Context(), info.Node)
		require.NoError(t, err)
		require.Equal(t, uint64(2), got.Incarnation)
		require.NoError(t, later.Leave(t.Context()))
		_, err = c.Node(t.Context(), info.Node)
		require.ErrorIs(t, err, meta.ErrNotFound)
	})(t)
}
