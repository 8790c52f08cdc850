package fs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func (d *daemon) move(from, to string) {
	d.t.Helper()
	d.do(order{Op: "move", Path: []byte(from), Target: []byte(to)})
}

// A directory is replaced elsewhere, and nobody here has been told: an open finds
// what is in the new one, though the kernel comes to it through the old.
func TestOpenInADirectoryThatWasReplacedElsewhere(t *testing.T) { // R1 N1
	t.Parallel()
	d := mountFakes(t, writable)
	for _, p := range []string{"a", "a/d", "a/next"} {
		d.on("dir", p)
	}
	d.file("a/d/f", 1, 5000, complete)
	d.file("a/next/f", 2, 5000, complete)
	d.file("a/next/g", 3, 5000, complete)
	u := newUser(t, d)
	u.cat("a/d/f", 1, 5000)
	u.cat("a/next/f", 2, 5000)
	d.move("a/d", "a/old")
	d.move("a/next", "a/d")
	u.cat("a/d/f", 2, 5000)
	u.cat("a/d/g", 3, 5000)
	u.cat("a/old/f", 1, 5000)
	u.fails(syscall.ENOENT, wish{Op: "open", Path: u.path("a/next/f")})

	// An empty one is replaced, and one above it.
	d.on("dir", "b")
	d.on("dir", "b/empty")
	u.fails(syscall.ENOENT, wish{Op: "open", Path: u.path("b/empty/f")})
	d.on("remove", "b/empty")
	d.move("a/d", "b/empty")
	u.cat("b/empty/f", 2, 5000)
	d.move("b", "c")
	d.move("a", "b")
	d.on("dir", "b/empty")
	d.file("b/empty/f", 4, 5000, complete)
	u.cat("b/empty/f", 4, 5000)
	u.cat("c/empty/f", 2, 5000)

	// What is removed by its name is what has it now.
	d.file("b/empty/new", 5, 5000, complete)
	u.cat("b/empty/new", 5, 5000)
	d.move("b/empty", "b/was")
	d.on("remove", "b/was/new")
	d.on("dir", "b/empty")
	d.file("b/empty/new", 6, 5000, complete)
	require.NoError(t, unix.Unlink(d.at("b/empty/new")))
	require.False(t, d.seen("b/empty/new").Exists)
}

// Who works in a directory that is moved elsewhere goes on there.
func TestWorkInADirectoryThatIsMovedElsewhere(t *testing.T) {
	t.Parallel()
	d := mountFakes(t)
	d.on("dir", "d")
	d.file("d/f", 1, 5000, complete)
	dir, err := unix.Open(d.at("d"), unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(dir)
	d.move("d", "e")
	for i := range 3 {
		if i == 1 {
			d.on("changed", "d")
			d.on("changed", "e")
			d.quiet()
		}
		fd, err := unix.Openat(dir, "f", unix.O_RDONLY, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		_, err = unix.Openat(dir, "nothing", unix.O_RDONLY, 0)
		require.ErrorIs(t, err, unix.ENOENT)
	}
}
