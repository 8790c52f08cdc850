package rdmatest

import (
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

// System is one transport under test: how to serve with it, how to read with
// it, and how to break it.
type System interface {
	// Serve starts a serving node. The test stops it, at its end at the
	// latest.
	Serve(t testing.TB, cfg ServeConfig) Server
	// Hostile starts a node that breaks every answer in one way.
	Hostile(t testing.TB, fault Fault, cfg ServeConfig) Server
	// Client starts a reading node. The test closes it, at its end at the
	// latest.
	Client(t testing.TB, cfg ClientConfig) Client
}

// ServeConfig is what a serving node needs.
type ServeConfig struct {
	Credentials rdma.Credentials
	Source      chunk.Source
	Counters    *rdma.Counters
	Addr        string // "" picks one
}

// Server is a serving node. Stop may be called twice.
type Server interface {
	Peer() chunk.Peer
	Stop()
}

// ClientConfig is what a reading node needs.
type ClientConfig struct {
	Credentials rdma.Credentials
	Counters    *rdma.Counters
	Memory      int64 // bytes; 0 is the transport's default
	Stall       time.Duration
}

// Client is a transport whose memory can be seen. Close may be called twice.
type Client interface {
	chunk.Transport
	MemoryInUse() int64
	Close() error
}

// Fault is one way in which a hostile node breaks its answers.
type Fault string

// The faults every transport is tried with.
const (
	ShortBody   Fault = "short body"
	EndlessBody Fault = "endless body"
	Garbage     Fault = "garbage"
	WrongBlock  Fault = "another block"
	WrongSum    Fault = "wrong sum"
	OtherNode   Fault = "another incarnation answers"
	ResetInBody Fault = "reset in mid-body"
	HangAtOnce  Fault = "hang at once"
	HangInBody  Fault = "hang in mid-body"
)

// Faults of one-sided transports only.
const (
	StaleKey    Fault = "stale key"
	TornRead    Fault = "torn read"
	LeaseRunOut Fault = "lease runs out"
)
