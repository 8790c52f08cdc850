package chunktest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// Frozen never answers.
func Frozen(ctx context.Context, _ *chunk.Received) error {
	<-ctx.Done()
	return ctx.Err()
}

// Lies sends other bytes with a checksum that fits them.
func Lies(_ context.Context, b *chunk.Received) error {
	if b.Zero {
		b.Zero, b.Data = false, make([]byte, b.Ref.Len)
	}
	b.Data[len(b.Data)/2] ^= 0x40
	b.Sum = chunk.Sum(b.Data)
	return nil
}

// SaysZero claims that the block is zero.
func SaysZero(_ context.Context, b *chunk.Received) error {
	b.Zero, b.Data, b.Sum = true, nil, 0
	return nil
}

// Short sends a byte less.
func Short(_ context.Context, b *chunk.Received) error {
	b.Data = b.Data[:len(b.Data)-1]
	b.Sum = chunk.Sum(b.Data)
	return nil
}

// Other sends another block.
func Other(_ context.Context, b *chunk.Received) error {
	b.Ref.Index++
	return nil
}

// Fails answers with err.
func Fails(err error) Fault {
	return func(context.Context, *chunk.Received) error { return err }
}

// Slow takes d longer.
func Slow(d time.Duration) Fault {
	return func(ctx context.Context, _ *chunk.Received) error { return Wait(ctx, d) }
}

// ErrReset is what Resets answers with.
var ErrReset = errors.New("connection reset by peer")

// Resets breaks every k-th block off.
func Resets(k int64) Fault {
	var n atomic.Int64
	return func(context.Context, *chunk.Received) error {
		if n.Add(1)%k == 0 {
			return ErrReset
		}
		return nil
	}
}

// Gate holds blocks back until it is opened.
type Gate chan struct{}

// Hold is the fault that waits at the gate.
func (g Gate) Hold(ctx context.Context, _ *chunk.Received) error {
	select {
	case <-g:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
