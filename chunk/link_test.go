package chunk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// TestLinkIsKeptBusy reads over a link on which a block takes as long as 4 MiB
// take at 2 Gbit/s, with half a millisecond to get there.
func TestLinkIsKeptBusy(t *testing.T) {
	const (
		blocks = 400
		each   = 16800 * time.Microsecond
	)
	tests := []struct {
		name string
		read func(r *rig, rd *chunk.Reader)
	}{
		{"all of it", func(r *rig, rd *chunk.Reader) { require.NoError(r.t, rd.FetchAll(r.t.Context(), nil)) }},
		{"forwards", func(r *rig, rd *chunk.Reader) {
			for off := int64(0); off < blocks*block; off += block / 4 {
				r.read(rd, off, block/4)
			}
		}},
		{"backwards", func(r *rig, rd *chunk.Reader) {
			for off := int64(blocks*block) - block/4; off >= 0; off -= block / 4 {
				r.read(rd, off, block/4)
			}
		}},
	}
	for _, peers := range []int{1, 3} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s from %d", tt.name, peers), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					for i := range peers {
						p := r.net.Keeper(fmt.Sprint(i))
						p.Delay(500 * time.Microsecond)
						p.Link(block * int64(time.Second/each) / int64(peers))
					}
					o := r.net.Object(blocks * block)
					rd := r.open(o)
					start := time.Now()
					tt.read(r, rd)
					ideal := time.Duration(blocks) * time.Second / (time.Second / each)
					took := time.Since(start)
					t.Logf("%.3f of the ideal time", float64(took)/float64(ideal))
					require.LessOrEqual(t, float64(took)/float64(ideal), 1.05)
					require.Zero(t, r.e.Stats().Duplicates)
				})
			})
		}
	}
}
