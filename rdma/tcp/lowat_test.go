package tcp_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/tcp"
)

// countingConn counts reads that brought something.
type countingConn struct {
	net.Conn
	reads int
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.reads++
	}
	return n, err
}

// pair returns the two ends of a connection: who reads wakes seldom.
func pair(t *testing.T) (reader net.Conn, writer *net.TCPConn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	r, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	w, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return tcp.Spare(r), w.(*net.TCPConn)
}

// A body that comes in small pieces wakes its reader for large ones.
func TestWakesAreFew(t *testing.T) {
	t.Parallel()
	const size, piece = 4 << 20, 4 << 10
	r, w := pair(t)
	data := rdmatest.RandomBytes(1, size)
	wrote := make(chan error, 1)
	go func() {
		for off := 0; off < size; off += piece {
			if _, err := w.Write(data[off : off+piece]); err != nil {
				wrote <- err
				return
			}
			time.Sleep(50 * time.Microsecond) // as a link has its rate
		}
		wrote <- nil
	}()
	c := &countingConn{Conn: r}
	got := make([]byte, size)
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	require.True(t, bytes.Equal(data, got))
	require.LessOrEqual(t, c.reads, 4*size/tcp.WakeAt, "of %d pieces", size/piece)
}

// Nothing that is there is kept back for long, large reads and small ones take
// turns, and the end of a stream is seen.
func TestFewBytesAreNotHeldBack(t *testing.T) {
	t.Parallel()
	r, w := pair(t)
	large, small := make([]byte, 4*tcp.WakeAt), make([]byte, 100)
	for range 3 {
		for _, p := range [][]byte{large, small} {
			_, err := w.Write([]byte("a few bytes"))
			require.NoError(t, err)
			n, err := r.Read(p)
			require.NoError(t, err)
			require.Equal(t, "a few bytes", string(p[:n]))
		}
	}
	read := make(chan error, 1)
	go func() {
		n, err := r.Read(large)
		if n > 0 {
			_, err = r.Read(large)
		}
		read <- err
	}()
	_, err := w.Write([]byte("the last"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.ErrorIs(t, <-read, io.EOF)
}

// A read that is small waits as long as it takes, whatever a large one before it
// had set.
func TestASmallReadWaits(t *testing.T) {
	t.Parallel()
	r, w := pair(t)
	_, err := w.Write(make([]byte, 10))
	require.NoError(t, err)
	_, err = r.Read(make([]byte, tcp.WakeAt))
	require.NoError(t, err)
	time.AfterFunc(time.Second, func() { _, _ = w.Write([]byte("late")) })
	p := make([]byte, 10)
	n, err := r.Read(p)
	require.NoError(t, err)
	require.Equal(t, "late", string(p[:n]))
	time.AfterFunc(time.Second, func() { _, _ = w.Write([]byte("late")) })
	n, err = r.Read(make([]byte, tcp.WakeAt))
	require.NoError(t, err, "nor does a large one fail that gets nothing")
	require.Equal(t, 4, n)
}
