//go:build linux && cgo && rdma

package ib_test

import (
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// two opens rxe0 and rxe1, which a guest has on the two ends of a link.
func two(t testing.TB) (reader, holder *ib.Device) {
	lib, err := ib.Load()
	require.NoError(t, err)
	names, err := lib.Devices()
	require.NoError(t, err)
	require.Subset(t, names, []string{"rxe0", "rxe1"}, "run this in a guest: make test-rdma")
	open := func(name string) *ib.Device {
		d, err := lib.Open(name)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	return open("rxe0"), open("rxe1")
}

// ipGID returns the index and the value of a device's IPv4 address.
func ipGID(t testing.TB, d *ib.Device) (uint8, [16]byte) {
	for i := range 16 {
		g, err := d.GID(1, i)
		if err == nil && strings.HasPrefix(string(g[:]), strings.Repeat("\x00", 10)+"\xff\xff") {
			return uint8(i), g
		}
	}
	t.Fatalf("%s has no IPv4 address", d.Name())
	return 0, [16]byte{}
}

func queue(t testing.TB, d *ib.Device) *ib.Queue {
	q, err := d.NewQueue(16)
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return q
}

// join connects two queues.
func join(t testing.TB, a, b *ib.Device) (*ib.Queue, *ib.Queue) { return joinMTU(t, a, b, 3) }

func joinMTU(t testing.TB, a, b *ib.Device, mtu uint8) (*ib.Queue, *ib.Queue) {
	x, y := queue(t, a), queue(t, b)
	xi, xg := ipGID(t, a)
	yi, yg := ipGID(t, b)
	path := ib.Path{Port: 1, MTU: mtu, ReadsOut: 16, ReadsIn: 16}
	p := path
	p.GIDIndex, p.PSN, p.PeerQPN, p.PeerPSN, p.PeerGID = xi, 11, y.QPN(), 22, yg
	require.NoError(t, x.Connect(p))
	p = path
	p.GIDIndex, p.PSN, p.PeerQPN, p.PeerPSN, p.PeerGID = yi, 22, x.QPN(), 11, xg
	require.NoError(t, y.Connect(p))
	return x, y
}

func anonymous(t testing.TB, n int) []byte {
	p, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(p)) })
	return p
}

func register(t testing.TB, d *ib.Device, p []byte, target bool) *ib.Memory {
	m, err := d.Register(p, target)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// mapped returns a read-only mapping of a new file of n random bytes.
func mapped(t testing.TB, n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, data, 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	p, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(p)) })
	return p
}

// reap waits for n READs or more.
func reap(t testing.TB, q *ib.Queue, n int) []ib.Done {
	var all []ib.Done
	out := make([]ib.Done, 4)
	for len(all) < n {
		m, err := q.Reap(out)
		require.NoError(t, err)
		all = append(all, out[:m]...)
	}
	return all
}

func addr(p []byte) uint64 { return ib.Address(p) }

// TestRead: 64 MiB out of a read-only mapping of a file.
func TestRead(t *testing.T) {
	reader, holder := two(t)
	const size, piece = 64 << 20, 1 << 20
	src, dst := mapped(t, size), anonymous(t, size)
	from, to := register(t, holder, src, false), register(t, reader, dst, true)
	q, _ := join(t, reader, holder)
	start := time.Now()
	for posted, ended := 0, 0; ended < size/piece; {
		var reads []ib.Read
		for ; posted < size/piece && posted-ended < 16; posted++ {
			reads = append(reads, ib.Read{
				ID: uint64(posted), Len: piece, LKey: to.LKey(), RKey: from.RKey(),
				Local: addr(dst[posted*piece:]), Remote: addr(src[posted*piece:]),
			})
		}
		n, err := q.Read(reads)
		require.NoError(t, err)
		require.Equal(t, len(reads), n)
		for _, d := range reap(t, q, 1) {
			require.Zero(t, d.Status, q.StatusText(d.Status))
			ended++
		}
	}
	t.Logf("%.0f MB/s", size/1e6/time.Since(start).Seconds())
	require.Equal(t, sha256.Sum256(src), sha256.Sum256(dst))
}

// TestWrongRead: what a holder did not allow fails, and brings no byte.
func TestWrongRead(t *testing.T) {
	reader, holder := two(t)
	const size = 64 << 10
	src, dst := mapped(t, size), anonymous(t, size)
	from, to := register(t, holder, src[:size/2], false), register(t, reader, dst, true)
	good := ib.Read{ID: 1, Len: size / 2, LKey: to.LKey(), RKey: from.RKey(), Local: addr(dst), Remote: addr(src)}
	gone, err := holder.Register(src, false)
	require.NoError(t, err)
	stale := gone.RKey()
	require.NoError(t, gone.Close())
	for name, change := range map[string]func(*ib.Read){
		"key":                 func(r *ib.Read) { r.RKey ^= 0x100 },
		"key of what is gone": func(r *ib.Read) { r.RKey = stale },
		"length":              func(r *ib.Read) { r.Len++ },
		"address before":      func(r *ib.Read) { r.Remote-- },
		"address behind":      func(r *ib.Read) { r.Remote += size / 2; r.Len = 1 },
		"address 0":           func(r *ib.Read) { r.Remote = 0 },
		"own key":             func(r *ib.Read) { r.LKey ^= 0x100 },
	} {
		t.Run(name, func(t *testing.T) {
			q, _ := join(t, reader, holder)
			r := good
			change(&r)
			_, err := q.Read([]ib.Read{r})
			if err == nil {
				require.NotZero(t, reap(t, q, 1)[0].Status)
			}
			require.Equal(t, make([]byte, size), dst)
		})
	}
	q, _ := join(t, reader, holder)
	_, err = q.Read([]ib.Read{good})
	require.NoError(t, err)
	require.Zero(t, reap(t, q, 1)[0].Status)
	require.Equal(t, src[:size/2], dst[:size/2])
}

// TestFail: READs of a connection in error are dropped, at either end.
func TestFail(t *testing.T) {
	reader, holder := two(t)
	const size = 1 << 20
	src, dst := mapped(t, size), anonymous(t, size)
	from, to := register(t, holder, src, false), register(t, reader, dst, true)
	read := ib.Read{ID: 7, Len: size, LKey: to.LKey(), RKey: from.RKey(), Local: addr(dst), Remote: addr(src)}

	q, far := join(t, reader, holder)
	require.NoError(t, q.Fail())
	n, err := q.Read([]ib.Read{read, read})
	if err == nil {
		for _, d := range reap(t, q, n) {
			require.EqualValues(t, ib.StatusFlushed, d.Status, q.StatusText(d.Status))
		}
	}
	require.NoError(t, far.Fail())

	q, far = join(t, reader, holder)
	require.NoError(t, far.Fail())
	_, err = q.Read([]ib.Read{read})
	require.NoError(t, err)
	d := reap(t, q, 1)[0]
	require.NotZero(t, d.Status)
	t.Logf("status %d: %s", d.Status, q.StatusText(d.Status))
	require.Equal(t, make([]byte, size), dst)
}

// TestFailInFlight: READs in flight end at once when their own end fails.
func TestFailInFlight(t *testing.T) {
	reader, holder := two(t)
	const size = 16 << 20
	src, dst := mapped(t, size), anonymous(t, size)
	from, to := register(t, holder, src, false), register(t, reader, dst, true)
	q, _ := join(t, reader, holder)
	n, err := q.Read([]ib.Read{{ID: 7, Len: size, LKey: to.LKey(), RKey: from.RKey(), Local: addr(dst), Remote: addr(src)}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, q.Fail())
	require.EqualValues(t, 7, reap(t, q, 1)[0].ID)
}

func TestWakeAndClose(t *testing.T) {
	reader, _ := two(t)
	q := queue(t, reader)
	done := make(chan error, 1)
	go func() {
		_, err := q.Reap(make([]ib.Done, 1))
		done <- err
	}()
	q.Wake()
	require.ErrorIs(t, <-done, ib.ErrClosed)
	q.Close()
	q.Close()
	_, err := q.Read([]ib.Read{{}})
	require.ErrorIs(t, err, ib.ErrClosed)
	require.NoError(t, q.Fail())
}

func TestQueries(t *testing.T) {
	reader, _ := two(t)
	l, err := reader.Limits()
	require.NoError(t, err)
	require.Positive(t, l.Depth)
	require.Positive(t, l.ReadsIn)
	require.NotZero(t, l.MaxMR)
	p, err := reader.Port(1)
	require.NoError(t, err)
	require.True(t, p.Active)
	require.True(t, p.Ethernet)
	t.Logf("%+v %+v", l, p)
	lib, err := ib.Load()
	require.NoError(t, err)
	_, err = lib.Open("nothing")
	require.True(t, errors.Is(err, unix.ENODEV), "%v", err)
}

// TestWritableFileIsNoTarget is why READs go into memory of their own.
func TestWritableFileIsNoTarget(t *testing.T) {
	reader, _ := two(t)
	_, err := reader.Register(mapped(t, 1<<20), true)
	require.Error(t, err, "a read-only mapping cannot be written to")
}
