package fs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fsxMost is the largest file of TestRandomOperations, in bytes.
const fsxMost = 300_000

// fsx does the same random operations to a file of the mount and to memory.
type fsx struct {
	t    *testing.T
	d    *daemon
	r    *rand.Rand
	path string
	f    *os.File
	m    []byte // the mapping, if any
	want []byte
	did  []string
}

func (x *fsx) log(format string, args ...any) { x.did = append(x.did, fmt.Sprintf(format, args...)) }

func (x *fsx) ok(err error) {
	x.t.Helper()
	require.NoError(x.t, err, "%v", x.did[max(0, len(x.did)-20):])
}

// span returns a range that begins in the file or a little behind it.
func (x *fsx) span() (off, n int) {
	off = x.r.IntN(min(len(x.want)+5000, fsxMost-1) + 1)
	return off, 1 + x.r.IntN(min(20_000, fsxMost-off))
}

func (x *fsx) extend(size int) {
	if size > len(x.want) {
		x.want = append(x.want, make([]byte, size-len(x.want))...)
	}
}

func (x *fsx) unmap() {
	if x.m != nil {
		x.ok(unix.Munmap(x.m))
		x.m = nil
	}
}

func (x *fsx) open() {
	flags := os.O_RDWR
	if x.r.IntN(10) == 0 {
		flags |= os.O_TRUNC
		x.want = nil
	}
	var err error
	x.f, err = os.OpenFile(x.path, flags, 0)
	x.ok(err)
}

// step does one operation.
func (x *fsx) step() {
	off, n := x.span()
	switch op := x.r.IntN(100); {
	case op < 30:
		x.log("write %d+%d", off, n)
		b := contentOf(x.r.Uint64(), n)
		_, err := x.f.WriteAt(b, int64(off))
		x.ok(err)
		x.extend(off + n)
		copy(x.want[off:], b)
	case op < 55:
		x.read(off, n)
	case op < 63:
		x.log("truncate %d", off)
		if x.m != nil {
			x.unmap()
		}
		if x.r.IntN(3) == 0 {
			x.ok(os.Truncate(x.path, int64(off)))
		} else {
			x.ok(x.f.Truncate(int64(off)))
		}
		x.extend(off)
		x.want = x.want[:off:off]
	case op < 80:
		x.mapped(off, n)
	case op < 84 && off < len(x.want):
		n = min(n, len(x.want)-off)
		x.log("punch %d+%d", off, n)
		x.ok(unix.Fallocate(int(x.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
		clear(x.want[off : off+n])
	case op < 87:
		x.log("sync")
		x.ok(x.f.Sync())
	case op < 95:
		x.log("reopen")
		x.unmap()
		x.ok(x.f.Close())
		x.d.isElsewhere("f", x.want)
		if x.r.IntN(2) == 0 {
			x.d.closed()
		}
		x.open()
	default:
		x.log("close a mapped file")
		m := x.m
		x.m = nil
		x.ok(x.f.Close())
		x.open()
		if m != nil {
			x.ok(unix.Munmap(m))
		}
	}
	info, err := os.Stat(x.path)
	x.ok(err)
	require.Equal(x.t, int64(len(x.want)), info.Size(), "%v", x.did[max(0, len(x.did)-20):])
}

func (x *fsx) read(off, n int) {
	x.log("read %d+%d", off, n)
	got := make([]byte, n)
	m, _ := x.f.ReadAt(got, int64(off))
	want := x.want[min(off, len(x.want)):min(off+n, len(x.want))]
	require.True(x.t, bytes.Equal(want, got[:m]), "%v", x.did[max(0, len(x.did)-20):])
}

// mapped writes or reads through a mapping of the whole file.
func (x *fsx) mapped(off, n int) {
	if len(x.want) == 0 || off >= len(x.want) {
		return
	}
	n = min(n, len(x.want)-off)
	if len(x.m) != len(x.want) {
		x.unmap()
		var err error
		x.m, err = unix.Mmap(int(x.f.Fd()), 0, len(x.want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		x.ok(err)
	}
	if x.r.IntN(2) == 0 {
		x.log("map read %d+%d", off, n)
		require.True(x.t, bytes.Equal(x.want[off:off+n], x.m[off:off+n]), "%v", x.did[max(0, len(x.did)-20):])
		return
	}
	x.log("map write %d+%d", off, n)
	content(x.m[off:off+n], x.r.Uint64(), 0)
	copy(x.want[off:], x.m[off:off+n])
	if x.r.IntN(3) == 0 {
		x.log("msync")
		x.ok(unix.Msync(x.m, unix.MS_SYNC))
	}
}

func TestRandomOperations(t *testing.T) {
	t.Parallel()
	steps := 2000
	if n, err := strconv.Atoi(os.Getenv("P2PFS_FSX")); err == nil {
		steps = n
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			d := mountFakes(t, mode...)
			x := &fsx{t: t, d: d, r: rand.New(rand.NewPCG(seed, 0)), path: d.at("f")}
			var err error
			x.f, err = os.Create(x.path)
			x.ok(err)
			for range steps {
				x.step()
			}
			x.unmap()
			x.ok(x.f.Close())
			d.closed()
			d.isElsewhere("f", x.want)
			readBack(t, x.path, x.want)
		})
	}
}
