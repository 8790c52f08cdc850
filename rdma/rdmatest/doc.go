// Package rdmatest holds what tests of transports share: a conformance suite
// that every transport passes (Run), a Source that keeps count of what it
// lent, a raw TCP server and a breaking proxy for hostile peers, and a fake
// one-sided transport (Network, Provider, Reader).
//
// The fake has the shape of RDMA verbs without the hardware. Nodes register
// memory; a reader asks for a lease on some blocks by a control call, learns
// address, key, length and sum, and then copies the bytes out of the
// provider's memory with none of the provider's code running. Leases are
// cooperative: one that runs out unreleased costs the reader its connection,
// before the memory is used for anything else.
//
// Only tests import it.
package rdmatest
