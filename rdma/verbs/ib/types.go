// Package ib is what moving blocks takes of libibverbs: devices, registered
// memory, and reliable connections over which the other end's memory is READ.
// The library is loaded when it is first asked for, so that a program runs
// where there is none. Without the build tag rdma the package is there and
// says that it can do nothing.
//
// It knows nothing of blocks, leases or peers.
package ib

import (
	"errors"
	"fmt"
	"unsafe"
)

// Errors that callers test for.
var (
	// ErrNotBuilt: this program was built without RDMA.
	ErrNotBuilt = errors.New("this program was built without RDMA (build tag rdma)")
	// ErrNoLibrary: libibverbs is not installed.
	ErrNoLibrary = errors.New("libibverbs cannot be loaded")
	// ErrClosed: the queue was closed.
	ErrClosed = errors.New("connection is closed")
)

// Limits is what a device can do.
type Limits struct {
	MaxMR             uint64 // bytes of one registration
	Registrations     int
	Queues            int
	Depth             int // READs posted to one queue
	ReadsOut, ReadsIn int // READs in flight from and towards one queue
}

// Port is the state of a device's port.
type Port struct {
	Active   bool
	MTU      uint8 // 1 (256 bytes) to 5 (4096)
	Ethernet bool
	LID      uint16
}

// Path leads from one end of a connection to the other.
type Path struct {
	Port     uint8 // own
	GIDIndex uint8 // own
	PSN      uint32
	MTU      uint8
	// ReadsOut and ReadsIn bound the READs in flight from here and towards
	// here, at least 1 each.
	ReadsOut, ReadsIn uint8

	PeerQPN, PeerPSN uint32
	PeerLID          uint16
	PeerGID          [16]byte
}

// Read is one READ: Len bytes at Remote, by RKey, to Local, by LKey.
type Read struct {
	ID            uint64
	Local, Remote uint64
	LKey, RKey    uint32
	Len           uint32
	_             uint32
}

// Done is a READ that has ended, well if Status is 0.
type Done struct {
	ID     uint64
	Status int32
	_      int32
}

// StatusError is a READ that failed.
type StatusError struct {
	Status int32
	Text   string
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("READ failed: %s (%d)", e.Text, e.Status) }

// StatusFlushed is the Status of READs that a connection in error dropped.
const StatusFlushed = 5

// Address returns where memory outside the Go heap begins, as READs name it.
func Address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
