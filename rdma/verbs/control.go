package verbs

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// control is the TCP connection of a link. Writing is safe for concurrent use;
// one goroutine reads.
type control struct {
	conn  net.Conn
	in    *bufio.Reader
	stall time.Duration // in which a frame must be taken
	sent  *atomic.Uint64

	mu  sync.Mutex
	buf []byte
}

func newControl(conn net.Conn, in *bufio.Reader, stall time.Duration, sent *atomic.Uint64) *control {
	return &control{conn: conn, in: in, stall: stall, sent: sent}
}

// send writes one message in one frame.
func (c *control) send(m interface{ append([]byte) []byte }) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = m.append(append(c.buf[:0], 0, 0, 0, 0))
	le.PutUint32(c.buf, uint32(len(c.buf)-4))
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.stall)) // fails when closed, as the write will
	if _, err := c.conn.Write(c.buf); err != nil {
		return fmt.Errorf("send a control message: %w", err)
	}
	c.sent.Add(1)
	return nil
}

// receive waits for a message.
func (c *control) receive() (any, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, fmt.Errorf("wait for a control message: %w", err)
	}
	n := le.Uint32(head[:])
	if n == 0 || n > maxFrame {
		return nil, fmt.Errorf("%w: frame of %d bytes", errWire, n)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(c.in, p); err != nil {
		return nil, fmt.Errorf("read a control message: %w", err)
	}
	return decode(p)
}
