package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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

// TestHowManyThinkAtOnceMakesNoDifference: who had time when, and on how many
// processors, is nothing that a run may show.
func TestHowManyThinkAtOnceMakesNoDifference(t *testing.T) {
	t.Parallel()
	cfg := few()
	cfg.Receivers, cfg.Size, cfg.Block, cfg.Churn, cfg.Slow, cfg.Dead, cfg.Lying = 200, 32<<20, 1<<20, 0.1, 0.1, 0.05, 0.05
	var alone string
	for _, workers := range []int{1, 2, 5} {
		w := newWorld(cfg)
		w.play(workers)
		require.True(t, w.result().Valid)
		all := fmt.Sprintf("%+v at %d\n", w.result(), w.now)
		for _, n := range w.nodes {
			all += fmt.Sprintln(n.began, n.done, n.sent, n.received)
		}
		if workers == 1 {
			alone = all
		}
		require.Equal(t, alone, all, "%d at once", workers)
	}
}

func TestFloor(t *testing.T) {
	t.Parallel()
	for r, want := range map[int]time.Duration{1: 64, 2: 65, 3: 65, 7: 66, 15: 67, 16: 68} {
		require.Equal(t, want*time.Second, Floor(r, 64<<20, 1<<20, 1<<20), "%d receivers", r)
	}
}

func TestCrowdsStayNearTheFloor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name            string
		change          func(*Config)
		slowest, copies float64
	}{
		{"by warm", func(*Config) {}, 1.45, 1.35},
		{"by cat", func(c *Config) { c.Cat = true }, 1.6, 1.55},
		{"some come and go", func(c *Config) { c.Churn = 0.1 }, 1.7, 1.6},
		{"some are dead", func(c *Config) { c.Dead = 0.1 }, 1.7, 1.6},
		{"some lie", func(c *Config) { c.Lying = 0.1 }, 1.7, 1.6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := few()
			tt.change(&cfg)
			r, err := Run(cfg)
			require.NoError(t, err)
			require.True(t, r.Valid)
			require.Less(t, r.SlowestOverFloor, tt.slowest)
			require.Less(t, r.SourceCopies, tt.copies)
			require.GreaterOrEqual(t, r.SlowestOverFloor, 1.0)
		})
	}
}

// TestAFileEntersAZoneOnce: what a zone lacks one of its nodes brings in, and whoever
// waits for a block does not wait for that one.
func TestAFileEntersAZoneOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		change         func(*Config)
		cross, slowest float64
	}{
		{"two zones by warm", func(c *Config) { c.Zones = 2 }, 1.1, 1.45},
		{"four zones by warm", func(c *Config) { c.Zones = 4 }, 1.1, 1.45},
		{"more nodes by warm", func(c *Config) { c.Receivers, c.Zones = 31, 4 }, 1.1, 1.45},
		{"two zones by cat", func(c *Config) { c.Zones, c.Cat = 2, true }, 1.2, 1.6},
		{"four zones by cat", func(c *Config) { c.Zones, c.Cat = 4, true }, 1.2, 1.6},
		{"some read a header", func(c *Config) { c.Zones, c.Glance = 2, 0.2 }, 1.2, 1.6},
		{"some read a header, the others by cat", func(c *Config) { c.Zones, c.Glance, c.Cat = 2, 0.2, true }, 1.25, 1.6},
		{"some come and go", func(c *Config) { c.Zones, c.Churn = 2, 0.1 }, 1.2, 1.7},
		{"some are dead", func(c *Config) { c.Zones, c.Dead = 2, 0.1 }, 1.2, 1.7},
		{"some lie", func(c *Config) { c.Zones, c.Lying = 2, 0.1 }, 1.3, 1.9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3) {
				cfg := few()
				cfg.Seed = 1 + seed
				tt.change(&cfg)
				r, err := Run(cfg)
				require.NoError(t, err)
				t.Logf("%+v", r)
				require.True(t, r.Valid)
				require.LessOrEqual(t, r.CrossZoneCopies, tt.cross, "seed %d", cfg.Seed)
				require.Less(t, r.SlowestOverFloor, tt.slowest, "seed %d", cfg.Seed)
				require.Less(t, r.GlanceSeconds, 2.0, "seed %d", cfg.Seed)
			}
		})
	}
}

// TestLinksCarryNoMoreThanTheyCan holds what each link carried against its
// rate: the shares of flows are worked out step by step.
func TestLinksCarryNoMoreThanTheyCan(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Receivers: 15, Size: 64 << 20, Block: 1 << 20, Rate: 100 * mbit, Latency: time.Millisecond, Seed: 3})
	w.play(2)
	most := w.cfg.Rate * float64(w.now) / 1e9
	for i, n := range w.nodes {
		require.LessOrEqual(t, float64(n.sent), 1.02*most, "sent by node %d", i)
		require.LessOrEqual(t, float64(n.received), 1.02*most, "received by node %d", i)
	}
}

func TestAWorldThatMakesNoSense(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"nobody":       func(c *Config) { c.Receivers = 0 },
		"empty":        func(c *Config) { c.Size = 0 },
		"no rate":      func(c *Config) { c.Rate = 0 },
		"odd blocks":   func(c *Config) { c.Block = 12345 },
		"no zones":     func(c *Config) { c.Zones = -1 },
		"all too many": func(c *Config) { c.Dead, c.Slow = 0.6, 0.6 },
	} {
		cfg := few()
		change(&cfg)
		_, err := Run(cfg)
		require.Error(t, err, name)
	}
}
