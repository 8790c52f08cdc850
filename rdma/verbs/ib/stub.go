//go:build !(linux && cgo && rdma)

package ib

// Built says whether this program can do RDMA at all.
const Built = false

// Library is libibverbs.
type Library struct{}

// Load returns ErrNotBuilt.
func Load() (*Library, error) { return nil, ErrNotBuilt }

// Devices returns no names.
func (*Library) Devices() ([]string, error) { return nil, ErrNotBuilt }

// Open returns ErrNotBuilt.
func (*Library) Open(string) (*Device, error) { return nil, ErrNotBuilt }

// Device is an opened device.
type Device struct{}

// Name returns nothing.
func (*Device) Name() string { return "" }

// Limits returns ErrNotBuilt.
func (*Device) Limits() (Limits, error) { return Limits{}, ErrNotBuilt }

// Port returns ErrNotBuilt.
func (*Device) Port(uint8) (Port, error) { return Port{}, ErrNotBuilt }

// GID returns ErrNotBuilt.
func (*Device) GID(uint8, int) ([16]byte, error) { return [16]byte{}, ErrNotBuilt }

// Register returns ErrNotBuilt.
func (*Device) Register([]byte, bool) (*Memory, error) { return nil, ErrNotBuilt }

// NewQueue returns ErrNotBuilt.
func (*Device) NewQueue(int) (*Queue, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (*Device) Close() error { return nil }

// Memory is registered memory.
type Memory struct{}

// LKey returns 0.
func (*Memory) LKey() uint32 { return 0 }

// RKey returns 0.
func (*Memory) RKey() uint32 { return 0 }

// Close does nothing.
func (*Memory) Close() error { return nil }

// Queue is one end of a connection.
type Queue struct{}

// QPN returns 0.
func (*Queue) QPN() uint32 { return 0 }

// Connect returns ErrNotBuilt.
func (*Queue) Connect(Path) error { return ErrNotBuilt }

// Read returns ErrNotBuilt.
func (*Queue) Read([]Read) (int, error) { return 0, ErrNotBuilt }

// Reap returns ErrNotBuilt.
func (*Queue) Reap([]Done) (int, error) { return 0, ErrNotBuilt }

// Fail does nothing.
func (*Queue) Fail() error { return nil }

// Wake does nothing.
func (*Queue) Wake() {}

// Close does nothing.
func (*Queue) Close() {}

// StatusText returns nothing.
func (*Queue) StatusText(int32) string { return "" }
