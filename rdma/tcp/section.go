package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// section is the part of a file that is still to be sent. Offsets are passed
// to the kernel with each call, so that many sections share one open file.
//
// net/http sends a file by sendfile only from the file's own position. It does
// however hand the bare connection to a source that can write itself, once the
// head is out: that is where WriteTo comes in.
type section struct {
	file     *os.File
	off, end int64
	stall    time.Duration   // without progress
	ctx      context.Context // of the request; ends the wait for limit
	limit    *Limiter        // nil: none
	may      int             // bytes of its turn that are left
}

var (
	_ io.Reader   = (*section)(nil)
	_ io.WriterTo = (*section)(nil)
)

// sendTo sends all of the section, and returns how many bytes left. Errors of
// the connection wrap errReader.
func (s *section) sendTo(w http.ResponseWriter) (int64, error) {
	start := s.off
	var err error
	if rf, ok := w.(io.ReaderFrom); ok {
		_, err = rf.ReadFrom(s)
	} else {
		_, err = s.WriteTo(w)
	}
	if err == nil && s.off < s.end {
		err = fmt.Errorf("%w: %d bytes were not taken", errReader, s.end-s.off)
	}
	return s.off - start, err
}

// Read implements io.Reader, for servers that cannot do better.
func (s *section) Read(p []byte) (int, error) {
	if s.off >= s.end {
		return 0, io.EOF
	}
	if err := s.turn(); err != nil {
		return 0, err
	}
	p = p[:min(len(p), s.now())]
	if err := readAt(s.file, p, s.off); err != nil {
		return 0, err
	}
	s.off += int64(len(p))
	s.sent(len(p))
	return len(p), nil
}

// WriteTo implements io.WriterTo: by sendfile where w is a socket.
func (s *section) WriteTo(w io.Writer) (int64, error) {
	start := s.off
	out, ok := w.(syscall.Conn)
	if !ok {
		return s.copyTo(w)
	}
	to, err := out.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errReader, err)
	}
	from, err := s.file.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("send from the source: %w", err)
	}
	for s.off < s.end && err == nil {
		if err = s.turn(); err != nil {
			break
		}
		if d, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
			_ = d.SetWriteDeadline(time.Now().Add(s.stall)) // fails when the connection is closed, as the write will
		}
		err = s.sendSome(to, from)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		_, err = s.copyTo(w) // a file system that cannot send pages
	}
	return s.off - start, err
}

// turn waits for a turn of the limiter, if it has none.
func (s *section) turn() error {
	if s.limit == nil || s.may > 0 {
		return nil
	}
	n, err := s.limit.take(s.ctx, int(min(s.end-s.off, mostTurn)))
	if err != nil {
		return fmt.Errorf("%w: %w", errReader, err)
	}
	s.may = n
	return nil
}

// now returns how many bytes may be sent now.
func (s *section) now() int {
	if s.limit == nil {
		return int(s.end - s.off)
	}
	return s.may
}

func (s *section) sent(n int) {
	if s.limit != nil {
		s.may -= max(n, 0)
	}
}

// sendSome waits until the socket takes bytes and makes one call.
func (s *section) sendSome(to, from syscall.RawConn) error {
	var sent, waited error
	err := from.Control(func(in uintptr) {
		waited = to.Write(func(out uintptr) bool {
			n, err := unix.Sendfile(int(out), int(in), &s.off, s.now())
			if err == unix.EAGAIN {
				return false
			}
			s.sent(n)
			sent = sendError(n, err)
			return true
		})
	})
	switch {
	case err != nil:
		return fmt.Errorf("send from the source: %w", err)
	case waited != nil:
		return fmt.Errorf("%w: %w", errReader, waited)
	}
	return sent
}

// sendError tells a reader that is gone from a source that ends early.
func sendError(n int, err error) error {
	switch {
	case err == unix.EINTR:
		return nil
	case err == unix.EPIPE || err == unix.ECONNRESET:
		return fmt.Errorf("%w: sendfile: %w", errReader, err)
	case err != nil:
		return fmt.Errorf("send from the source: %w", err)
	case n == 0:
		return fmt.Errorf("send from the source: %w", io.ErrUnexpectedEOF)
	}
	return nil
}

// copyBuffer is the piece that is copied where sendfile cannot be used.
const copyBuffer = 128 << 10

func (s *section) copyTo(w io.Writer) (int64, error) {
	start := s.off
	buf := make([]byte, min(copyBuffer, s.end-s.off))
	for s.off < s.end {
		if err := s.turn(); err != nil {
			return s.off - start, err
		}
		p := buf[:min(len(buf), s.now())]
		if err := readAt(s.file, p, s.off); err != nil {
			return s.off - start, err
		}
		n, err := w.Write(p)
		s.off += int64(n)
		s.sent(n)
		if err != nil {
			return s.off - start, fmt.Errorf("%w: %w", errReader, err)
		}
	}
	return s.off - start, nil
}
