package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/node"
)

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "64MiB": 64 << 20, "10G": 10 << 30, "10g": 10 << 30, "1.5K": 1536, "2TiB": 2 << 40,
		"3kb": 3000, "3 MB": 3_000_000, "7B": 7, "1P": 1 << 50, "2EiB": 2 << 60, " 5M ": 5 << 20,
		"9007199254740993": 9007199254740993,
	} {
		got, err := parseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, bad := range []string{"", "G", "plenty", "-1", "1X", "1iB", "10GG", "1KiBB", "NaN", "Inf", "8E", "1 2", "0x10", "5%", "1,5G"} {
		_, err := parseSize(bad)
		require.Error(t, err, bad)
	}
}

func TestFormatSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB", 1<<20 - 1: "1.0 MiB",
		1<<30 + 1<<29: "1.5 GiB", math.MaxInt64: "8 EiB", 5<<40 + 3<<38: "5.8 TiB",
	} {
		require.Equal(t, want, formatSize(n), n)
	}
}

func TestSpaceFlag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text     string
		bytes    int64
		fraction float64
	}{
		{"5%", 0, 0.05}, {"12.5%", 0, 0.125}, {"10G", 10 << 30, 0}, {"0", -1, 0}, {"0%", -1, 0},
	} {
		var f spaceFlag
		require.NoError(t, f.Set(c.text), c.text)
		var cfg node.Config
		f.apply(&cfg)
		require.Equal(t, c.bytes, cfg.FreeSpace.Bytes, c.text)
		require.InDelta(t, c.fraction, cfg.FreeSpace.Fraction, 1e-9, c.text)
	}
	for _, bad := range []string{"100%", "-1%", "%", "x%", "NaN%", "much"} {
		require.Error(t, new(spaceFlag).Set(bad), bad)
	}
	var unset spaceFlag
	cfg := node.Config{}
	unset.apply(&cfg)
	require.Zero(t, cfg.FreeSpace)
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"64MiB", "1e9", "  ", "iB", "9999999999E"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil {
			require.GreaterOrEqual(t, n, int64(0))
		}
	})
}
