package verbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/verbs/ib"
)

// errRegister: a block cannot be offered by RDMA; it may be had over TCP.
var errRegister = errors.New("block cannot be registered for RDMA")

// regionKey names a part of an object's file as one device knows it. An object
// never has two contents, so that a part needs no date; but it may move to
// another file, and the old one's memory is no longer what is looked after.
type regionKey struct {
	device string
	object chunk.ObjectID
	file   fileID
	span   chunk.Span
}

// fileID is which file it is. No other gets the same while one is mapped.
type fileID struct{ dev, ino uint64 }

// region is a part of a file, mapped read-only and registered for others to
// READ. The mapping keeps the file's bytes even if its name goes.
type region struct {
	mapped []byte
	memory *ib.Memory
}

const (
	// minCharge is what a registration counts for at least, in bytes: small
	// files would else use up a device's registrations and a process's
	// mappings long before they are many bytes.
	minCharge = 64 << 10
	// maxRegions bounds the registrations of files: each is a mapping, of which
	// a process may have 65,530 (vm.max_map_count), other parts of it included.
	maxRegions = 16 << 10
)

// dropAge is how old a registration must be to be made anew because a reader
// found its bytes to be wrong.
const dropAge = time.Second

// charge is what a part of a file counts for against what may be registered.
func charge(s chunk.Span) int64 { return max(s.Len, minCharge) }

// mostRegions bounds the registrations of files by what the weakest device can
// hold; 0 in limits: it does not say.
func mostRegions(limits ...int) int {
	n := maxRegions
	for _, l := range limits {
		if l > 0 {
			n = min(n, max(l/2, 1))
		}
	}
	return n
}

func newRegion(d *hostDevice, f *os.File, s chunk.Span) (region, error) {
	p, err := mapFile(f, s)
	if err != nil {
		return region{}, fmt.Errorf("%w: map %d bytes at %d: %w", errRegister, s.Len, s.Off, err)
	}
	m, err := d.Register(p, false)
	if err != nil {
		return region{}, errors.Join(fmt.Errorf("%w: %w", errRegister, hint(err)), unix.Munmap(p))
	}
	return region{mapped: p, memory: m}, nil
}

// hint adds what to do about a failed registration.
func hint(err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (raise the limit of locked memory: ulimit -l unlimited, LimitMEMLOCK=infinity)", err)
	}
	return err
}

func mapFile(f *os.File, s chunk.Span) (p []byte, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) {
		p, err = unix.Mmap(int(fd), s.Off, int(s.Len), unix.PROT_READ, unix.MAP_SHARED)
	})
	return p, errors.Join(cerr, err)
}

// close ends all access, then lets go of the file.
func (r region) close() error {
	return errors.Join(r.memory.Close(), unix.Munmap(r.mapped))
}

// regionOf returns the part of a block's file that has to be registered, and
// which file that is.
func regionOf(b chunk.Block, size int64) (chunk.Span, fileID, error) {
	info, err := b.File.Stat()
	if err != nil {
		return chunk.Span{}, fileID{}, fmt.Errorf("look at the source: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return chunk.Span{}, fileID{}, fmt.Errorf("look at the source: %w: no file of a file system", errRegister)
	}
	if b.Off > info.Size()-b.Len {
		return chunk.Span{}, fileID{}, fmt.Errorf("read %d bytes at %d of the source: %w", b.Len, b.Off, io.ErrUnexpectedEOF)
	}
	s, ok := part(b.Off, b.Len, info.Size(), size)
	if !ok {
		return chunk.Span{}, fileID{}, fmt.Errorf("%w: %d bytes at %d are in more than one part of %d bytes", errRegister, b.Len, b.Off, size)
	}
	return s, fileID{uint64(st.Dev), st.Ino}, nil
}
