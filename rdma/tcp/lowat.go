package tcp

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wakeAt is how many bytes of a body are worth waking for: on slow links most of
// a node's processor time goes into waking, not into bytes. patience is how long
// fewer may lie in the socket.
const (
	wakeAt   = 64 << 10
	patience = 200 * time.Millisecond
)

// sparing is a connection on which who reads wakeAt bytes or more is woken when
// so many are there (SO_RCVLOWAT, socket(7)), or whatever has come after
// patience. A reader must not ask for more than is due, else it waits patience
// for the last bytes. One goroutine reads at a time.
type sparing struct {
	net.Conn
	raw   syscall.RawConn
	lowat int       // what the socket was told last
	until time.Time // the deadline it has, zero for none
}

// spare returns c, or what wakes its reader less often where c is a socket.
func spare(c net.Conn) net.Conn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return c
	}
	return &sparing{Conn: c, raw: raw, lowat: 1}
}

// Read implements net.Conn.
func (s *sparing) Read(p []byte) (int, error) {
	if len(p) < wakeAt {
		s.wake(1)
		return s.Conn.Read(p)
	}
	s.wake(wakeAt)
	n, err := s.Conn.Read(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	s.wake(1)
	return s.Conn.Read(p)
}

// wake says for how many bytes. A connection that cannot be told fails when it
// is read from, or wakes for each.
func (s *sparing) wake(n int) {
	if n != s.lowat {
		_ = s.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
		})
		s.lowat = n
	}
	var until time.Time
	if n > 1 {
		if until = time.Now().Add(patience); s.until.After(until.Add(-patience / 2)) {
			return // soon enough, and a timer is not set for each read
		}
	} else if s.until.IsZero() {
		return
	}
	_ = s.SetReadDeadline(until)
	s.until = until
}
