package chunk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

// A piece that cannot be written costs the block a second fetch, not its
// readers their bytes.
func TestAPieceThatCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Transport = chunktest.Streaming{Net: r.net}
		o := r.net.Object(3 * block)
		r.net.Keeper("k")
		rd := r.open(o)
		r.store.FailWrites(chunk.ErrNoSpace)
		r.read(rd, 0, block)
		r.store.FailWrites(nil)
		r.read(rd, block, block)
		require.NoError(t, rd.Close())
	})
}

// A peer that lies about a bound block is found out before its bytes count.
func TestALieInPieces(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Transport = chunktest.Streaming{Net: r.net}
		o := r.net.Object(2 * block)
		r.net.BindAll()
		r.net.Mirror("liar").Break(chunktest.Lies)
		r.net.Keeper("k")
		rd := r.open(o)
		r.read(rd, 0, 2*block)
		require.NoError(t, rd.Close())
	})
}
