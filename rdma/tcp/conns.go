package tcp

import (
	"net"
	"sync"
)

// connSet knows every open connection, so that Close can leave none behind.
type connSet struct {
	mu   sync.Mutex
	open map[*trackedConn]struct{}
}

type trackedConn struct {
	net.Conn
	set *connSet
}

// add returns what to use instead of c, and how many connections are open.
func (s *connSet) add(c net.Conn) (net.Conn, int) {
	t := &trackedConn{Conn: c, set: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*trackedConn]struct{})
	}
	s.open[t] = struct{}{}
	return t, len(s.open)
}

// Close implements net.Conn.
func (t *trackedConn) Close() error {
	t.set.mu.Lock()
	delete(t.set.open, t)
	t.set.mu.Unlock()
	return t.Conn.Close()
}

func (s *connSet) closeAll() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for t := range open {
		_ = t.Conn.Close() // it is being thrown away
	}
}

func (s *connSet) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}
