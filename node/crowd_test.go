package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

func TestAFollowerIsNamedSomeOfTheOthers(t *testing.T) {
	t.Parallel()
	var c crowd
	id := chunk.NewObjectID()
	var leave []func()
	for i := range 20 {
		zone := "far"
		if i%2 > 0 {
			zone = "near"
		}
		others, l := c.join(id, peerInfo(chunk.Peer{Node: chunk.NewNodeID(), Zone: zone, Addrs: map[string]string{"tcp": "h:1"}}))
		require.Len(t, others, min(i, 8))
		if i == 19 {
			require.Equal(t, 6, countZone(others, "near"), "of its own zone")
		}
		leave = append(leave, l)
	}
	require.Equal(t, 20, c.size(id))
	for _, l := range leave {
		l()
	}
	require.Zero(t, c.size(id))
	require.Empty(t, c.objects)
}

func countZone(ps []*nodepb.PeerInfo, zone string) (n int) {
	for _, p := range ps {
		if p.Zone == zone {
			n++
		}
	}
	return n
}

func TestAPeerIsWhatItSaysOnlyIfThatMakesSense(t *testing.T) {
	t.Parallel()
	good := chunk.Peer{Node: chunk.NewNodeID(), Incarnation: 3, Name: "n", Zone: "z", Addrs: map[string]string{"tcp": "h:1"}}
	got, ok := peerFrom(peerInfo(good))
	require.True(t, ok)
	require.Equal(t, good, got)
	for name, p := range map[string]*nodepb.PeerInfo{
		"nothing":      nil,
		"no address":   {Node: good.Node[:]},
		"no node":      {Addrs: good.Addrs},
		"zero node":    {Node: make([]byte, 16), Addrs: good.Addrs},
		"long name":    {Node: good.Node[:], Addrs: good.Addrs, Name: string(make([]byte, 1000))},
		"long address": {Node: good.Node[:], Addrs: map[string]string{"tcp": string(make([]byte, 1000))}},
	} {
		_, ok := peerFrom(p)
		require.False(t, ok, name)
	}
}
