package metatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/p2pfs/p2pfs/meta"
)

// Lossy is a store that loses requests and answers while it is told to: one of
// two changes is made, and none is answered.
type Lossy struct {
	meta.Slots
	On *atomic.Bool
}

var _ meta.Slots = Lossy{}

// Get implements meta.Slots.
func (l Lossy) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	if l.On.Load() && rand.IntN(2) == 0 {
		return nil, fmt.Errorf("%w: made so", meta.ErrUnavailable)
	}
	return l.Slots.Get(ctx, keys...)
}

// Apply implements meta.Slots.
func (l Lossy) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	if !l.On.Load() {
		return l.Slots.Apply(ctx, slot, conds, sets)
	}
	if rand.IntN(2) == 0 {
		_, _ = l.Slots.Apply(ctx, slot, conds, sets)
	}
	return 0, fmt.Errorf("%w: made so", meta.ErrUnavailable)
}
