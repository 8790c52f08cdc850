package swarm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestTheFloorIsOneCopyAndABlockForEachDoubling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		receivers int
		blocks    int64
		want      float64
	}{
		{1, 64, 10}, {2, 10, 11}, {3, 10, 11}, {4, 10, 12}, {7, 64, 10 * (1 + 2.0/64)}, {15, 64, 10 * (1 + 3.0/64)},
	} {
		require.InDelta(t, c.want, floor(10, c.receivers, c.blocks), 1e-9, "%d receivers", c.receivers)
	}
}

func TestResultTakesTheSlowestAndTheMedian(t *testing.T) {
	t.Parallel()
	r := Result{FloorSeconds: 2}
	r.take([]float64{4, 2, 3.00049, 2.5})
	require.Equal(t, []float64{2, 2.5, 3, 4}, r.Seconds)
	require.InDelta(t, 2, r.SlowestOver, 1e-9)
	require.InDelta(t, 2.75/2, r.MedianOver, 1e-3)
}

func TestIdleTimeOfAllProcessors(t *testing.T) {
	t.Parallel()
	before, err := parseCPU([]byte("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	require.NoError(t, err)
	after, err := parseCPU([]byte("cpu  110 0 60 110 20 0 0 0 5 5\n"))
	require.NoError(t, err)
	require.InDelta(t, 0.25, after.idleSince(before), 1e-9)
	require.Zero(t, before.idleSince(before))
	for _, bad := range []string{"", "cpu 1 2 3", "cpux 1 2 3 4 5 6 7 8 9", "cpu 1 2 3 4 x 6 7 8 9"} {
		_, err := parseCPU([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestProcessorTimeOfAProcess(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for s := 0.0; s < 3*tick; { // work
		require.Less(t, time.Since(began), time.Minute)
		var err error
		s, err = processSeconds(os.Getpid())
		require.NoError(t, err)
	}
	_, err := processSeconds(1 << 30)
	require.Error(t, err)
}

func TestTheFileIsAsItsSeedSays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	one, err := writeRandom(t.Context(), path, 3*piece+17, 1)
	require.NoError(t, err)
	read, err := digest(t.Context(), path)
	require.NoError(t, err)
	require.Equal(t, one, read)
	again, err := writeRandom(t.Context(), path, 3*piece+17, 1)
	require.NoError(t, err)
	require.Equal(t, one, again)
	other, err := writeRandom(t.Context(), path, 3*piece+17, 2)
	require.NoError(t, err)
	require.NotEqual(t, one, other)
}
