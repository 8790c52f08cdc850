package chunk_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/chunktest"
)

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trickle is a transport whose blocks come in pieces, one each five seconds.
type trickle struct {
	chunktest.Streaming
	pieces int
	spoilt int // pieces after which they turn out to be wrong; 0: they do not
}

func (s trickle) FetchTo(ctx context.Context, from chunk.Peer, ref chunk.BlockRef, put func([]byte) error) (chunk.Received, error) {
	return s.Streaming.FetchTo(ctx, from, ref, func(all []byte) error {
		n := (len(all) + s.pieces - 1) / s.pieces
		for k := 1; len(all) > 0; k++ {
			if err := pass(ctx, 5*time.Second); err != nil {
				return err
			}
			if err := put(all[:min(n, len(all))]); err != nil {
				return err
			}
			if k == s.spoilt {
				return chunk.ErrCorrupt
			}
			all = all[min(n, len(all)):]
		}
		return nil
	})
}

// A block takes as long as it takes while its bytes come.
func TestABlockThatComesSlowlyIsWaitedFor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		read func(t *testing.T, rd *chunk.Reader) error
		deaf bool // nothing but the bytes says that the provider lives
	}{
		{"read", func(t *testing.T, rd *chunk.Reader) error {
			_, err := fetch(t.Context(), rd, 0, 10)
			return err
		}, false},
		{"all of it", func(t *testing.T, rd *chunk.Reader) error { return rd.FetchAll(t.Context(), nil) }, false},
		{"read again", func(t *testing.T, rd *chunk.Reader) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := fetch(ctx, rd, 0, 10)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(25 * time.Second) // more than the grace period: it comes nevertheless
			start := time.Now()
			_, err = fetch(t.Context(), rd, 0, 10)
			require.Less(t, time.Since(start), 10*time.Second)
			return err
		}, false},
		{"nothing else is heard", func(t *testing.T, rd *chunk.Reader) error {
			_, err := fetch(t.Context(), rd, 0, 10)
			return err
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubbleOn(t, true, func(t *testing.T, r *rig) {
				a := r.net.Keeper("a")
				if tt.deaf {
					a.Deaf()
				}
				r.cfg.Transport = trickle{chunktest.Streaming{Net: r.net}, 5, 0}
				r.cfg.Limits.NoProvider = 8 * time.Second
				rd := r.open(r.net.Object(block))
				require.NoError(t, tt.read(t, rd))
				require.Equal(t, []int{0}, a.Fetched(), "its bytes were thrown away")
				require.NoError(t, rd.Close())
			})
		})
	}
}

// Nobody waits for ever for a source of which bytes come, and never all of them.
func TestABlockThatBreaksOffAgainAndAgainIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		read func(t *testing.T, rd *chunk.Reader) error
	}{
		{"read", func(t *testing.T, rd *chunk.Reader) error {
			_, err := fetch(t.Context(), rd, 0, 10)
			return err
		}},
		{"all of it", func(t *testing.T, rd *chunk.Reader) error { return rd.FetchAll(t.Context(), nil) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubbleOn(t, true, func(t *testing.T, r *rig) {
				a := r.net.Keeper("a")
				r.cfg.Transport = trickle{chunktest.Streaming{Net: r.net}, 5, 3}
				rd := r.open(r.net.Object(block))
				start := time.Now()
				require.ErrorIs(t, tt.read(t, rd), chunk.ErrStalled)
				require.InDelta(t, (15*time.Second + 30*time.Second).Seconds(), time.Since(start).Seconds(), 1)
				require.Greater(t, len(a.Fetched()), 1)
				require.NoError(t, rd.Close())
			})
		})
	}
}
