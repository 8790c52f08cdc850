//go:build linux && cgo && rdma

package ib

/*
#cgo LDFLAGS: -ldl
#include "ib.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Built says whether this program can do RDMA at all.
const Built = true

// Library is libibverbs. It stays loaded.
type Library struct{ api *C.struct_ib_api }

// Load loads libibverbs. Errors: ErrNoLibrary.
func Load() (*Library, error) {
	api := (*C.struct_ib_api)(C.calloc(1, C.sizeof_struct_ib_api))
	if missing := C.ib_load(api); missing != nil {
		err := fmt.Errorf("%w (install libibverbs1 and ibverbs-providers): %s", ErrNoLibrary, C.GoString(missing))
		C.free(unsafe.Pointer(api))
		return nil, err
	}
	return &Library{api: api}, nil
}

func errnoOf(rc C.int) error {
	if rc == 0 {
		return nil
	}
	return syscall.Errno(rc)
}

// Devices returns the names of the devices that this process may see.
func (l *Library) Devices() ([]string, error) {
	size := 4096
	for {
		buf := make([]byte, size)
		n := int(C.ib_names(l.api, (*C.char)(unsafe.Pointer(&buf[0])), C.size_t(size)))
		switch {
		case n < 0:
			return nil, fmt.Errorf("list RDMA devices: %w", syscall.Errno(-n))
		case n <= size:
			return strings.Fields(string(buf[:n])), nil
		}
		size = n
	}
}

// Device is an opened device with a protection domain. Safe for concurrent use
// until Close.
type Device struct {
	name string
	c    *C.struct_ib_device
}

// Open opens a device.
func (l *Library) Open(name string) (*Device, error) {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	d := &Device{name: name, c: (*C.struct_ib_device)(C.calloc(1, C.sizeof_struct_ib_device))}
	if err := errnoOf(C.ib_open(l.api, s, d.c)); err != nil {
		C.free(unsafe.Pointer(d.c))
		return nil, fmt.Errorf("open RDMA device %s: %w", name, err)
	}
	return d, nil
}

// Name returns the device's name.
func (d *Device) Name() string { return d.name }

// Close closes the device. Its memory and queues were closed before.
func (d *Device) Close() error {
	err := errnoOf(C.ib_close(d.c))
	C.free(unsafe.Pointer(d.c))
	d.c = nil
	if err != nil {
		return fmt.Errorf("close RDMA device %s: %w", d.name, err)
	}
	return nil
}

// Limits returns what the device can do.
func (d *Device) Limits() (Limits, error) {
	var l C.struct_ib_limits
	if err := errnoOf(C.ib_query(d.c, &l)); err != nil {
		return Limits{}, fmt.Errorf("query RDMA device %s: %w", d.name, err)
	}
	return Limits{
		MaxMR: uint64(l.max_mr_size), Registrations: int(l.max_mr), Queues: int(l.max_qp),
		Depth: int(min(l.max_qp_wr, l.max_cqe-1)), ReadsOut: int(l.reads_out), ReadsIn: int(l.reads_in),
	}, nil
}

// Port returns the state of a port; the first is 1.
func (d *Device) Port(port uint8) (Port, error) {
	var p C.struct_ib_port
	if err := errnoOf(C.ib_query_port(d.c, C.uint8_t(port), &p)); err != nil {
		return Port{}, fmt.Errorf("query port %d of %s: %w", port, d.name, err)
	}
	return Port{Active: p.active != 0, MTU: uint8(p.mtu), Ethernet: p.ethernet != 0, LID: uint16(p.lid)}, nil
}

// GID returns an address of a port.
func (d *Device) GID(port uint8, index int) (gid [16]byte, err error) {
	if err := errnoOf(C.ib_query_gid(d.c, C.uint8_t(port), C.int(index), (*C.uint8_t)(unsafe.Pointer(&gid[0])))); err != nil {
		return gid, fmt.Errorf("query address %d of port %d of %s: %w", index, port, d.name, err)
	}
	return gid, nil
}

// Memory is registered memory. It stays mapped until after Close.
type Memory struct {
	dev *Device
	mr  *C.struct_ibv_mr
}

// Register registers memory outside the Go heap: as target of own READs, or
// else for others to READ, for which it may be a read-only mapping.
func (d *Device) Register(p []byte, target bool) (*Memory, error) {
	m := &Memory{dev: d}
	t := C.int(0)
	if target {
		t = 1
	}
	if err := errnoOf(C.ib_register(d.c, unsafe.Pointer(unsafe.SliceData(p)), C.size_t(len(p)), t, &m.mr)); err != nil {
		return nil, fmt.Errorf("register %d bytes with %s: %w", len(p), d.name, err)
	}
	return m, nil
}

// LKey returns the key for own READs.
func (m *Memory) LKey() uint32 { return uint32(m.mr.lkey) }

// RKey returns the key for others' READs.
func (m *Memory) RKey() uint32 { return uint32(m.mr.rkey) }

// Close ends all access.
func (m *Memory) Close() error {
	if err := errnoOf(C.ib_deregister(m.dev.c, m.mr)); err != nil {
		return fmt.Errorf("deregister memory with %s: %w", m.dev.name, err)
	}
	return nil
}

// Queue is one end of a reliable connection. Read and Fail may be called at
// any time before Close, Reap by one goroutine at a time.
type Queue struct {
	dev    *Device
	qpn    uint32
	events *os.File // the channel of completions, under the runtime's poller
	woken  atomic.Bool

	mu sync.RWMutex // held for writing by Close alone
	c  *C.struct_ib_queue
}

// NewQueue returns an end that is not connected yet, for depth READs at once.
func (d *Device) NewQueue(depth int) (*Queue, error) {
	q := &Queue{dev: d, c: (*C.struct_ib_queue)(C.calloc(1, C.sizeof_struct_ib_queue))}
	if err := errnoOf(C.ib_queue_open(d.c, C.int(depth), q.c)); err != nil {
		C.free(unsafe.Pointer(q.c))
		return nil, fmt.Errorf("make a queue on %s: %w", d.name, err)
	}
	// The library closes its own descriptor, the file closes another.
	fd, err := unix.FcntlInt(uintptr(q.c.channel.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		C.ib_queue_close(q.c)
		C.free(unsafe.Pointer(q.c))
		return nil, fmt.Errorf("make a queue on %s: %w", d.name, err)
	}
	q.events = os.NewFile(uintptr(fd), "completions of "+d.name)
	q.qpn = uint32(q.c.qp.qp_num)
	return q, nil
}

// QPN returns the number that the other end connects to.
func (q *Queue) QPN() uint32 { return q.qpn }

// Connect joins this end with the other, which does the same.
func (q *Queue) Connect(p Path) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.c == nil {
		return ErrClosed
	}
	c := C.struct_ib_path{
		qpn: C.uint32_t(p.PeerQPN), psn: C.uint32_t(p.PeerPSN), own_psn: C.uint32_t(p.PSN), lid: C.uint16_t(p.PeerLID),
		port: C.uint8_t(p.Port), gid_index: C.uint8_t(p.GIDIndex), mtu: C.uint8_t(p.MTU),
		reads_out: C.uint8_t(p.ReadsOut), reads_in: C.uint8_t(p.ReadsIn),
	}
	for i, b := range p.PeerGID {
		c.gid[i] = C.uint8_t(b)
	}
	if err := errnoOf(C.ib_queue_connect(q.c, &c)); err != nil {
		return fmt.Errorf("connect a queue on %s: %w", q.dev.name, err)
	}
	return nil
}

// Read posts READs and returns how many were taken: all of them, unless it
// fails. There is one Done for each.
func (q *Queue) Read(reads []Read) (int, error) {
	if len(reads) == 0 {
		return 0, nil
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.c == nil {
		return 0, ErrClosed
	}
	var posted C.int
	rc := C.ib_queue_read(q.c, (*C.struct_ib_read)(unsafe.Pointer(&reads[0])), C.int(len(reads)), &posted)
	if err := errnoOf(rc); err != nil {
		return int(posted), fmt.Errorf("post READs on %s: %w", q.dev.name, err)
	}
	return int(posted), nil
}

// Reap waits for READs to end. Errors: ErrClosed after Wake or Close.
func (q *Queue) Reap(out []Done) (int, error) {
	raw, err := q.events.SyscallConn()
	if err != nil {
		return 0, ErrClosed
	}
	var n int
	err = raw.Read(func(uintptr) bool {
		n = q.reap(out)
		return n != -int(unix.EAGAIN)
	})
	switch {
	case err != nil && q.woken.Load():
		return 0, ErrClosed // the runtime's own error for it cannot be named
	case err != nil:
		return 0, fmt.Errorf("wait for READs on %s: %w", q.dev.name, err)
	case n < 0:
		return 0, fmt.Errorf("poll for READs on %s: %w", q.dev.name, syscall.Errno(-n))
	}
	return n, nil
}

func (q *Queue) reap(out []Done) int {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.c == nil {
		return -int(unix.EBADF)
	}
	return int(C.ib_queue_reap(q.c, (*C.struct_ib_done)(unsafe.Pointer(&out[0])), C.int(len(out))))
}

// Fail moves the connection to error: READs in flight end, and none begins. No
// READ of the other end touches memory here once it returns.
func (q *Queue) Fail() error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.c == nil {
		return nil
	}
	if err := errnoOf(C.ib_queue_fail(q.c)); err != nil {
		return fmt.Errorf("move a queue on %s to error: %w", q.dev.name, err)
	}
	return nil
}

// Wake ends a Reap that waits, and all later ones.
func (q *Queue) Wake() {
	q.woken.Store(true)
	_ = q.events.Close()
}

// Close frees the queue. It may be called twice.
func (q *Queue) Close() {
	q.Wake()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.c == nil {
		return
	}
	C.ib_queue_close(q.c)
	C.free(unsafe.Pointer(q.c))
	q.c = nil
}

// StatusText says what the Status of a Done means.
func (q *Queue) StatusText(status int32) string {
	return C.GoString(C.ib_status(q.dev.c.api, C.int(status)))
}
