package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mbit = 1e6 / 8

// few is a run that takes no time to speak of.
func few() Config {
	return Config{Receivers: 15, Size: 256 << 20, Rate: 150 * mbit, Latency: 5 * time.Millisecond, Seed: 1}
}

func TestASeedRepeatsARun(t *testing.T) {
	t.Parallel()
	for _, cat := range []bool{false, true} {
		cfg := few()
		cfg.Cat, cfg.Churn, cfg.Slow, cfg.Dead, cfg.Lying = cat, 0.1, 0.1, 0.1, 0.1
		a, err := Run(cfg)
		require.NoError(t, err)
		b, err := Run(cfg)
		require.NoError(t, err)
		require.Equal(t, a, b)
		require.True(t, a.Valid, "%+v", a)
		cfg.Seed = 2
		b, err = Run(cfg)
		require.NoError(t, err)
		require.NotEqual(t, a.SlowestOverFloor, b.SlowestOverFloor)
	}
}

func TestFloor(t *testing.T) {
	t.Parallel()
	for r, want := range map[int]time.Duration{1: 64, 2: 65, 3: 65, 7: 66, 15: 67, 16: 68} {
		require.Equal(t, want*time.Second, Floor(r, 64<<20, 1<<20, 1<<20), "%d receivers", r)
	}
}
