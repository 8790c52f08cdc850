package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A block of which the only source sends half a mebibyte a second takes longer
// than its other requests may wait for their turn.
func TestAFileComesFromASourceThatIsSlow(t *testing.T) {
	t.Parallel()
	const size = 6 << 20
	c := newCluster(t, bigBlocks)
	a, b := c.start("a", "--upload-limit=512KiB"), c.start("b")
	sum := registered(t, a, "f", size, 1)
	b.must("get", b.path("f"))
	require.Equal(t, sum, digest(t, b.path("f")))
}
