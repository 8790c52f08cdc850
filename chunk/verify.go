package chunk

import (
	"context"
	"fmt"
)

// checker compares what a peer sent with what a keeper vouches for. A sum that
// is known already binds keepers too; otherwise a keeper is asked while the
// bytes are on their way, unless the peer is one itself.
type checker struct {
	facts  Facts
	o      Object
	block  int
	keeper bool // the peer is one
	known  bool
	sum    uint32

	answers chan answer // nil: not asked
	heard   bool        // the answer was taken
	cancel  context.CancelFunc
}

type answer struct {
	sum uint32
	ok  bool
}

func (s *swarm) checker(f *flight) *checker {
	sum, known := s.sums[f.block]
	return &checker{facts: s.e.cfg.Facts, o: s.o, block: f.block, keeper: f.peer.keeper, sum: sum, known: known}
}

// begin asks, if there is anything to ask. stop must follow.
func (c *checker) begin(ctx context.Context) {
	if c.known || c.keeper || c.facts == nil {
		return
	}
	ctx, c.cancel = context.WithTimeout(ctx, askTimeout)
	c.answers = make(chan answer, 1)
	go func() {
		defer close(c.answers)
		sum, ok := c.facts.Sum(ctx, c.o, c.block)
		c.answers <- answer{sum, ok}
	}()
}

// stop ends the asking and waits for that.
func (c *checker) stop() {
	if c.answers == nil {
		return
	}
	c.cancel()
	for range c.answers {
	}
}

// end checks the block. It returns the sum that holds and whether a keeper
// vouches for it; with an error too.
func (c *checker) end(ctx context.Context, b Received) (sum uint32, bound bool, err error) {
	if c.answers != nil && !c.heard {
		c.heard = true
		a := <-c.answers
		c.sum, c.known = a.sum, a.ok
		if !a.ok && ctx.Err() != nil {
			return 0, false, ctx.Err()
		}
	}
	sum = b.Sum
	if b.Zero && (c.known || c.keeper) {
		sum = zeroSum(b.Ref.Len)
	}
	switch {
	case !c.known:
		return sum, c.keeper, nil
	case sum == c.sum:
		return sum, true, nil
	case c.keeper:
		return c.sum, true, fmt.Errorf("block %d has sum %08x, and was bound to %08x: %w", c.block, sum, c.sum, ErrDamaged)
	default:
		return c.sum, true, fmt.Errorf("block %d has sum %08x, not %08x: %w", c.block, sum, c.sum, ErrDisowned)
	}
}

// zeroSum returns the checksum of n zero bytes.
func zeroSum(n int64) uint32 {
	var page [MinBlockSize]byte
	sum := uint32(0)
	for n > 0 {
		k := min(n, int64(len(page)))
		sum = AddSum(sum, page[:k])
		n -= k
	}
	return sum
}
