package fs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestErrorsAtClose(t *testing.T) { // W2, W10
	t.Parallel()
	d := mountFakes(t, writable)
	d.do(order{Op: "failpublish", On: true})
	f := openFile(t, d.at("f"), os.O_CREATE|os.O_WRONLY)
	write(t, f, []byte("kept"))
	require.ErrorIs(t, f.Close(), syscall.EIO)
	eventually(t, func() bool { return d.state().OpenFiles == 0 }, "closed")
	s := d.state()
	require.Equal(t, uint64(1), s.PublishesFailed, "who closed was told: that is not tried again")
	require.Zero(t, s.Made)
	readBack(t, d.at("f"), []byte("kept"))
	d.do(order{Op: "failpublish"})

	f = openFile(t, d.at("f"), os.O_WRONLY|os.O_APPEND)
	write(t, f, []byte(" whole"))
	require.NoError(t, f.Close())
	d.isElsewhere("f", []byte("kept whole"))

	d.do(order{Op: "failpublish", On: true})       // with nobody to tell
	closed := filepath.Join(t.TempDir(), "closed") // a child that wrote before would be told by its own close
	sh(t, d.point, "mkfifo "+closed+"; exec 5> g; exec 6< <(: < "+closed+"; /bin/echo late >&5); exec 5>&-; : > "+closed+"; cat <&6")
	eventually(t, func() bool { return d.state().PublishesFailed == 2 }, "failed")
}

func TestFullStage(t *testing.T) { // W14
	t.Parallel()
	d := mountFakes(t, writable)
	f := openFile(t, d.at("f"), os.O_CREATE|os.O_WRONLY)
	write(t, f, []byte("fits"))
	d.do(order{Op: "fullstage", On: true})
	_, err := f.Write([]byte("does not"))
	require.ErrorIs(t, err, syscall.ENOSPC)
	d.do(order{Op: "fullstage"})
	require.NoError(t, f.Close())
	d.isElsewhere("f", []byte("fits"))
}

func TestSlowPublishBlocksNobody(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	d.file("other", 1, 5000, complete)
	d.do(order{Op: "gatepublish", On: true})
	const writers = 30
	done := make(chan error, writers)
	for i := range writers {
		f := openFile(t, d.at("f"+itoa(i)), os.O_CREATE|os.O_WRONLY)
		write(t, f, []byte("x"))
		go func() { done <- f.Close() }()
	}
	readBack(t, d.at("other"), contentOf(1, 5000))
	readBack(t, d.at("f0"), []byte("x"))
	require.NoError(t, os.Mkdir(d.at("dir"), 0o755))
	f := openFile(t, d.at("f1"), os.O_RDWR) // while it is published
	write(t, f, []byte("y"))
	select {
	case <-done:
		t.Fatal("a close did not wait")
	default:
	}
	d.do(order{Op: "gatepublish"})
	for range writers {
		require.NoError(t, <-done)
	}
	require.NoError(t, f.Close())
	d.isElsewhere("f1", []byte("y"))
}

// A closer who is killed does not wait; what it wrote is published after it.
func TestKilledCloser(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	d.do(order{Op: "gatepublish", On: true})
	cmd := exec.Command("bash", "-c", "echo a > f; sleep 100")
	cmd.Dir = d.point
	require.NoError(t, cmd.Start())
	eventually(t, func() bool { return d.state().Publishing == 1 }, "closing") // killed before, it would not have closed
	require.NoError(t, cmd.Process.Kill())
	slow := time.AfterFunc(90*time.Second, func() { t.Error("still there") })
	_ = cmd.Wait()
	slow.Stop()
	d.do(order{Op: "gatepublish"})
	d.closed()
	d.isElsewhere("f", []byte("a\n"))
}

func TestManyFilesOpenForWriting(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable)
	var all []*os.File
	for i := range 500 {
		f := openFile(t, d.at("f"+itoa(i)), os.O_CREATE|os.O_RDWR)
		write(t, f, []byte(itoa(i)))
		all = append(all, f)
	}
	for i, f := range all {
		got := make([]byte, 10)
		n, _ := f.ReadAt(got, 0)
		require.Equal(t, itoa(i), string(got[:n]))
		require.NoError(t, f.Close())
	}
	require.Equal(t, 500, d.closed().Made)
}

// Without the capability, O_TRUNC is an open followed by a change of size.
func TestWithoutAtomicTruncation(t *testing.T) {
	t.Parallel()
	d := mountFakes(t, writable, func(o *order) { o.Without = fuse.CAP_ATOMIC_O_TRUNC })
	sh(t, d.point, "echo a long line > f; /bin/echo b > f; echo c > g; : > g")
	s := d.closed()
	d.isElsewhere("f", []byte("b\n"))
	d.isElsewhere("g", nil)
	require.Equal(t, 4, s.Made)
}

func TestHolesAndAllocation(t *testing.T) { // W13
	t.Parallel()
	d := mountFakes(t, writable)
	f := openFile(t, d.at("f"), os.O_CREATE|os.O_RDWR)
	fd := int(f.Fd())
	_, err := f.WriteAt([]byte("x"), 5<<20)
	require.NoError(t, err)
	at, err := unix.Seek(fd, 0, unix.SEEK_DATA)
	require.NoError(t, err)
	require.Equal(t, int64(5<<20), at)
	require.NoError(t, unix.Fallocate(fd, 0, 0, 6<<20))
	info, err := f.Stat()
	require.NoError(t, err)
	require.Equal(t, int64(6<<20), info.Size())
	_, err = f.WriteAt(contentOf(1, 8192), 0)
	require.NoError(t, err)
	require.NoError(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096))
	got := make([]byte, 8192)
	_, err = f.ReadAt(got, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(make([]byte, 4096), got[:4096]))
	require.True(t, bytes.Equal(contentOf(1, 8192)[4096:], got[4096:]))
	require.ErrorIs(t, unix.Fallocate(fd, unix.FALLOC_FL_INSERT_RANGE, 0, 4096), syscall.EOPNOTSUPP)
	require.NoError(t, f.Sync()) // W11
	require.False(t, d.seen("f").Exists)
	require.NoError(t, f.Close())
	require.Equal(t, int64(6<<20), d.seen("f").Size)
}
