package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTTLFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "3600": time.Hour, "30m": 30 * time.Minute, "7d": 7 * 24 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		var f ttlFlag
		require.NoError(t, f.Set(text), text)
		require.Equal(t, ttlFlag{want, true}, f, text)
	}
	for _, text := range []string{"", "-1", "-1h", "soon", "1.5d", "10ms", "999999999999999999", "200000d", "9999999999999999999999"} {
		var f ttlFlag
		require.Error(t, f.Set(text), text)
		require.False(t, f.set, text)
	}
	s, err := settings(map[string]string{"P2P_REDIS_KEY_TTL": "3600"}, "/mnt/models")
	require.NoError(t, err)
	require.Equal(t, time.Hour, s.config.KeyTTL)
	s, err = settings(map[string]string{"P2P_REDIS_KEY_TTL": "3600", "P2PFS_KEY_TTL": "1m"}, "/mnt/models")
	require.NoError(t, err)
	require.Equal(t, time.Minute, s.config.KeyTTL)
}
