package chunk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThereIsRoomForThoseWhoFollow: a node that took all who are named to it would
// know those who came first, and nobody would know who came last.
func TestThereIsRoomForThoseWhoFollow(t *testing.T) {
	t.Parallel()
	b := newBench(64, 1)
	var named []Peer
	for range 4 * b.l.Peers {
		named = append(named, Peer{Node: NewNodeID(), Incarnation: 1})
	}
	b.introduce(named, b.g)
	sought := len(b.peers)
	require.Less(t, sought, b.l.Peers)
	b.introduce(named, b.g)
	require.Len(t, b.peers, sought, "named again")
	for range 4 * b.l.Peers {
		b.followed(Peer{Node: NewNodeID(), Incarnation: 1}, b.g)
	}
	require.Len(t, b.peers, b.l.Peers*3/2)
	gone := b.peers[3]
	gone.st.fail(b.now, errLate, true)
	last := Peer{Node: NewNodeID(), Incarnation: 1}
	b.followed(last, b.g)
	require.NotContains(t, b.peers, gone, "one that fails makes room")
	require.Equal(t, last.Node, b.peers[len(b.peers)-1].Node)
}
