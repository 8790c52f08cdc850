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

	mu   sync.Mutex
	buf  []byte
	part []byte
}

func newControl(conn net.Conn, in *bufio.Reader, stall time.Duration, sent *atomic.Uint64) *control {
	return &control{conn: conn, in: in, stall: stall, sent: sent}
}

// send writes messages in one frame; in more if they do not fit.
func (c *control) send(ms ...message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = c.buf[:0]
	start, frames := 0, uint64(0)
	for _, m := range ms {
		c.part = m.append(c.part[:0])
		if frames == 0 || len(c.buf)-start+len(c.part)+4 > maxFrame+4 {
			start = len(c.buf)
			c.buf = append(c.buf, 0, 0, 0, 0)
			frames++
		}
		c.buf = append(le.AppendUint32(c.buf, uint32(len(c.part))), c.part...)
		le.PutUint32(c.buf[start:], uint32(len(c.buf)-start-4))
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.stall)) // fails when closed, as the write will
	if _, err := c.conn.Write(c.buf); err != nil {
		return fmt.Errorf("send a control message: %w", err)
	}
	c.sent.Add(frames)
	return nil
}

// receive waits for the messages of one frame.
func (c *control) receive() ([]any, error) {
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
	return decodeFrame(p)
}
