package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRates(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"150mbit": 150_000_000, "1gbit": 1_000_000_000, "2.5Gbit/s": 2_500_000_000, "64 kbit": 64_000, "5000bit": 5000,
	} {
		got, err := parseRate(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
		back, err := parseRate(formatRate(got))
		require.NoError(t, err)
		require.Equal(t, want, back)
	}
	for _, bad := range []string{"", "150", "fast", "-1mbit", "0mbit", "1e30gbit", "10MB", "nanmbit"} {
		_, err := parseRate(bad)
		require.Error(t, err, bad)
	}
}
