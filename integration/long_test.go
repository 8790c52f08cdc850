//go:build long

package integration

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLongHundredKillsInMidFetch(t *testing.T) { t.Parallel(); killStorm(t, 100, 1) }

func TestLongStoreFrozenForAMinute(t *testing.T) { t.Parallel(); storeOutage(t, time.Minute, true) }

func TestLongStoreStoppedForAMinute(t *testing.T) { t.Parallel(); storeOutage(t, time.Minute, false) }

func TestLongSixteenNodesReadAFreshFileAtOnce(t *testing.T) {
	c := newCluster(t, bigBlocks)
	a := c.start("a")
	const size = 128 << 20
	sum := registered(t, a, "f", size, 1)
	var nodes []*node
	var cmds []*exec.Cmd
	for i := range 16 {
		nodes = append(nodes, c.start("n"+itoa(i)))
		cmds = append(cmds, digestCmd(nodes[i].path("f")))
	}
	for _, r := range together(t, cmds...) {
		require.Zero(t, r.code, r.String())
		require.Equal(t, sum, digestOf(t, r))
	}
	sent := a.status().Counters["sent_bytes"]
	t.Logf("the source sent %.2f copies", float64(sent)/size)
	require.LessOrEqual(t, sent, int64(4*size))
}

func TestLongHundredMountsAndUnmounts(t *testing.T) {
	c := newCluster(t)
	var nodes []*node
	for i := range 8 {
		nodes = append(nodes, c.node("n"+itoa(i)))
	}
	for range 13 {
		for _, n := range nodes {
			n.launch()
		}
		for _, n := range nodes {
			n.waitReady(60 * time.Second)
			n.stop()
		}
	}
}
