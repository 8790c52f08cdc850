package tcp

import (
	"context"
	"io"
	"net"
	"time"

	"golang.org/x/time/rate"
)

// LeastLimit is the least rate that can be kept to, in bytes per second: below
// it, many transfers side by side would each wait so long for their turn that
// they seem to have stopped.
const LeastLimit = 64 << 10

const (
	leastTurn = 4 << 10
	mostTurn  = 256 << 10
	// turnsPerSecond and burstsPerSecond say how much may pass at once: a part
	// of a second's worth.
	turnsPerSecond  = 64
	burstsPerSecond = 16
	leastBuffer     = 32 << 10
	mostBuffer      = 1 << 20
)

// Limiter shares a rate among all transfers that are given it: each takes a
// turn of a few milliseconds' worth of bytes, and then the next, in the order
// in which they asked. Nil limits nothing. Safe for concurrent use.
type Limiter struct {
	bucket *rate.Limiter
	turn   int // the most bytes of one turn
	buffer int // of a connection that is read from
}

// NewLimiter returns a limiter of so many bytes per second, LeastLimit at
// least; nil for 0.
func NewLimiter(bytesPerSecond int64) *Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	r := max(bytesPerSecond, LeastLimit)
	turn := int(min(max(r/turnsPerSecond, leastTurn), mostTurn))
	return &Limiter{
		bucket: rate.NewLimiter(rate.Limit(r), max(int(r/burstsPerSecond), turn)),
		turn:   turn,
		buffer: int(min(max(r/burstsPerSecond, leastBuffer), mostBuffer)),
	}
}

// take waits for a turn and returns how many bytes of n it is for. ctx ends the
// wait.
func (l *Limiter) take(ctx context.Context, n int) (int, error) {
	n = min(n, l.turn)
	at := l.bucket.ReserveN(time.Now(), n)
	if wait := at.Delay(); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			at.Cancel() // whoever waits behind goes sooner
			return 0, context.Cause(ctx)
		}
	}
	return n, nil
}

// throttle keeps what arrives early in the sender's hands: without it, the
// kernel would take in many blocks at the full speed of the link.
func (l *Limiter) throttle(c net.Conn) {
	if tc, ok := c.(*net.TCPConn); ok && l != nil {
		_ = tc.SetReadBuffer(l.buffer) // else there are bursts
	}
}

// paced is a body that is read at the rate of a limiter. The time that its
// turns are waited for is not the peer's.
type paced struct {
	body  io.Reader
	limit *Limiter
	watch *watchdog
	may   int // bytes of the turn that are left
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	if p.may == 0 && len(b) > 0 {
		p.watch.pause()
		n, err := p.limit.take(p.watch.ctx, len(b))
		if err != nil {
			return 0, err
		}
		p.may = n
		p.watch.progress()
	}
	n, err := p.body.Read(b[:min(len(b), p.may)])
	p.may -= n
	return n, err
}
