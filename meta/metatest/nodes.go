package metatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

func node(name, host string) meta.NodeInfo {
	return meta.NodeInfo{
		Node: chunk.NewNodeID(), Incarnation: 1, Name: name, Zone: "z1", Host: host, ProtoMin: 1, ProtoMax: 2,
		Addrs: map[string]string{"tcp": "10.0.0.1:7000"}, Features: []string{"f"}, Kind: "daemon",
	}
}

func join(t *testing.T, c *meta.Catalog, n meta.NodeInfo) *meta.Membership {
	t.Helper()
	m, err := c.JoinNode(t.Context(), n, time.Hour)
	require.NoError(t, err)
	return m
}

func testLocate(t *testing.T, c *meta.Catalog) {
	set := chunk.NewSetID()
	got, err := c.Locate(t.Context(), set)
	require.NoError(t, err)
	require.Empty(t, got)

	live, dead, keeper := node("live", "h1"), node("dead", "h2"), node("keeper", "h3")
	join(t, c, live)
	join(t, c, keeper)
	for _, n := range []meta.NodeInfo{live, dead} {
		require.NoError(t, c.Announce(t.Context(), set, n.Node, false, false))
	}
	require.NoError(t, c.Announce(t.Context(), set, keeper.Node, true, true))

	got, err = c.Locate(t.Context(), set)
	require.NoError(t, err)
	require.ElementsMatch(t, []chunk.Provider{
		{Peer: live.Peer()},
		{Peer: keeper.Peer(), Keeper: true, Complete: true},
	}, got)

	all, err := c.Providers(t.Context(), set)
	require.NoError(t, err)
	require.Len(t, all, 3)
	for _, p := range all {
		require.Equal(t, p.Node != dead.Node, p.Alive)
	}
	require.NoError(t, c.Withdraw(t.Context(), set, live.Node))
	require.NoError(t, c.Withdraw(t.Context(), set, live.Node))
	got, err = c.Locate(t.Context(), set)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

// testLocateMany: a few of many, keepers among them, dead ones not; and the
// few differ.
func testLocateMany(t *testing.T, c *meta.Catalog) {
	set := chunk.NewSetID()
	keeper := node("keeper", "h")
	join(t, c, keeper)
	require.NoError(t, c.Announce(t.Context(), set, keeper.Node, true, true))
	alive := map[chunk.NodeID]bool{keeper.Node: true}
	for i := range 150 {
		n := node("n", "h")
		if i%2 == 0 {
			join(t, c, n)
			alive[n.Node] = true
		}
		require.NoError(t, c.Announce(t.Context(), set, n.Node, false, true))
	}
	seen := map[chunk.NodeID]bool{}
	for range 5 {
		got, err := c.Locate(t.Context(), set)
		require.NoError(t, err)
		require.Len(t, got, 32)
		keepers := 0
		for _, p := range got {
			require.True(t, alive[p.Node])
			require.NotEmpty(t, p.Addrs)
			seen[p.Node] = true
			if p.Keeper {
				keepers++
			}
		}
		require.Equal(t, 1, keepers)
	}
	require.Greater(t, len(seen), 32)
}

func testAnnounce(t *testing.T, c *meta.Catalog) {
	set, n := chunk.NewSetID(), node("n", "h")
	join(t, c, n)
	for _, step := range []struct{ keeper, complete, wantKeeper, wantComplete bool }{
		{false, false, false, false},
		{true, false, true, false},
		{false, true, true, true},
		{false, false, true, true},
	} {
		require.NoError(t, c.Announce(t.Context(), set, n.Node, step.keeper, step.complete))
		got, err := c.Locate(t.Context(), set)
		require.NoError(t, err)
		require.Equal(t, []chunk.Provider{{Peer: n.Peer(), Keeper: step.wantKeeper, Complete: step.wantComplete}}, got)
	}
}

func testNodes(t *testing.T, c *meta.Catalog) {
	n := node("one", "h")
	_, err := c.Node(t.Context(), n.Node)
	require.ErrorIs(t, err, meta.ErrNotFound)
	m := join(t, c, n)
	got, err := c.Node(t.Context(), n.Node)
	require.NoError(t, err)
	require.Equal(t, n, got)
	require.NoError(t, m.Leave(t.Context()))
	_, err = c.Node(t.Context(), n.Node)
	require.ErrorIs(t, err, meta.ErrNotFound)

	all, err := c.Nodes(t.Context())
	require.NoError(t, err)
	require.Equal(t, []meta.NodeState{{NodeInfo: n}}, all)
}

func testNodeTaken(t *testing.T, c *meta.Catalog) {
	first := node("first", "host-a")
	join(t, c, first)
	double := first
	double.Incarnation, double.Host, double.Name = 2, "host-b", "double"
	_, err := c.JoinNode(t.Context(), double, time.Hour)
	require.ErrorIs(t, err, meta.ErrExist)
	require.ErrorContains(t, err, "host-a")
	require.ErrorContains(t, err, "10.0.0.1:7000")

	restarted := first
	restarted.Incarnation = 3
	join(t, c, restarted)
	got, err := c.Node(t.Context(), first.Node)
	require.NoError(t, err)
	require.Equal(t, restarted, got)
}

// testNodeRejoins: a record that was lost while the node lived comes back, and
// a node whose id another machine took ends.
func testNodeRejoins(t *testing.T, c *meta.Catalog) {
	n := node("n", "host-a")
	m, err := c.JoinNode(t.Context(), n, 3*time.Second)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	require.NoError(t, m.Leave(t.Context())) // as if it had run out
	require.Eventually(t, func() bool {
		got, err := c.Node(t.Context(), n.Node)
		return err == nil && got.Incarnation == n.Incarnation
	}, soon, 20*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)

	go func() { ended <- m.Run(t.Context()) }()
	require.NoError(t, m.Leave(t.Context()))
	double := n
	double.Host = "host-b"
	if _, err := c.JoinNode(t.Context(), double, time.Hour); err != nil {
		require.ErrorIs(t, err, meta.ErrExist) // the first was quicker to come back
		return
	}
	require.ErrorIs(t, <-ended, meta.ErrExist)
}
