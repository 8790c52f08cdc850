package cache

import (
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkPublishSmall is what a small file costs, from its creation on, with 8
// writers; waits/op is how often one of them waited for the disk for its group.
func BenchmarkPublishSmall(b *testing.B) {
	cfg := config(b)
	if dir := os.Getenv("P2PFS_BENCH_DIR"); dir != "" {
		cfg.Roots = []string{dir}
	}
	c := openCache(b, cfg)
	data := content(object(bs), 0)[:3000]
	var next atomic.Uint64
	b.SetParallelism(4) // times GOMAXPROCS
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s, err := c.Stage(b.Context(), next.Add(1), bs, nil)
			require.NoError(b, err)
			require.NoError(b, s.SetNote([]byte("new"), false))
			require.NoError(b, s.WriteAt(b.Context(), data, 0))
			require.NoError(b, s.SetNote([]byte("publishing"), false))
			_, err = s.Publish(b.Context(), cut())
			require.NoError(b, err)
			require.NoError(b, s.Discard())
			require.NoError(b, s.Close())
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "publishes/s")
	b.ReportMetric(float64(c.roots[0].journal.group.works)/float64(b.N), "waits/op")
}
