package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/swarm"
)

// realRun is one as seven real nodes made it on links of 150 Mbit/s.
func realRun(change func(*swarm.Result)) swarm.Result {
	r := swarm.Result{
		Receivers: 7, SizeBytes: 256 << 20, Blocks: 128, RateBits: 150_000_000, By: "warm",
		CopySeconds: 15, LatencySeconds: 0.001, SlowestSeconds: 16.8, SourceCopies: 1.06, Valid: true,
	}
	if change != nil {
		change(&r)
	}
	return r
}

func TestRealRunsAreHeldAgainstSimulations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*swarm.Result)
		valid  bool
	}{
		{"alike", nil, true},
		{"slower", func(r *swarm.Result) { r.SlowestSeconds = 20 }, false},
		{"faster", func(r *swarm.Result) { r.SlowestSeconds = 13 }, false},
		{"more copies", func(r *swarm.Result) { r.SourceCopies = 1.4 }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, err := compareRuns([]swarm.Result{realRun(tt.change), realRun(tt.change)}, 1)
			require.NoError(t, err)
			require.Equal(t, tt.valid, l.Valid, "%+v", l)
			require.Equal(t, 2, l.RealRuns)
		})
	}
}

func TestRunsThatSayNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*swarm.Result){
		"invalid":      func(r *swarm.Result) { r.Valid = false },
		"another kind": func(r *swarm.Result) { r.Receivers = 3 },
		"empty":        func(r *swarm.Result) { r.CopySeconds = 0 },
		"other blocks": func(r *swarm.Result) { r.Blocks = 64 },
	} {
		runs := []swarm.Result{realRun(nil), realRun(change)}
		if name == "other blocks" {
			runs = runs[1:]
		}
		_, err := compareRuns(runs, 1)
		require.Error(t, err, name)
	}
	_, err := compareRuns(nil, 1)
	require.Error(t, err)
}
