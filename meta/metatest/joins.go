package metatest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// joinBytes is the most that a provider that joins may make a store write: its
// record, the version of its set, and what the store's own log has of them.
const joinBytes = 1024

// RunJoins checks that a provider that joins makes the store write a few bytes,
// however many there are. written returns how many bytes the store has written.
func RunJoins(t *testing.T, s meta.Slots, written func() int) {
	c := meta.NewCatalog(s, meta.Options{})
	Join(t, c)
	set, there := chunk.NewSetID(), 0
	join := func() {
		require.NoError(t, c.Announce(t.Context(), set, chunk.NewNodeID(), false, true))
		there++
	}
	for _, n := range []int{1, 30, 600} {
		for there < n {
			join()
		}
		before := written()
		for range 10 {
			join()
		}
		each := (written() - before) / 10
		t.Logf("with %d providers: %d bytes", n, each)
		require.Positive(t, each)
		require.Less(t, each, joinBytes, "with %d providers", n)
	}
}
