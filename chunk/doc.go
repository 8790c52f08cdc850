// Package chunk owns the words of p2pfs and the engine that brings blocks to
// this machine.
//
// An object is immutable bytes with a random 128-bit id: an id never stands
// for two contents. Its bytes are cut into chunks (64 MiB by default: the unit
// of the registry and of read-ahead), and chunks into blocks (4 MiB by
// default, 2 MiB in objects of up to 1 GiB: the unit of exchange, of checksums,
// of the local map and of the all-zero bit).
//
// The package imports none of ours. What the engine needs from the outside
// (local bytes, transports, the registry, other nodes) it states as small
// interfaces in seams.go; cache, rdma, meta and node satisfy them.
//
// # The engine
//
// Engine.Open gives a Reader. A read of blocks that are here touches no lock
// and no goroutine but the caller's. Any other read goes to the swarm of the
// object, one goroutine that owns all there is to know about fetching it:
//
//	reader -> swarm (board: state) -> plan (policy) -> flight -> Transport
//	reader <- swarm <----------------- landed: check, File.Put
//
// The policy (board, policy, pick, ramp, standing) is plain code: state in,
// flights out, the time passed in. What objects share, places in flight and
// the standing of peers, lies behind the gate, which policies pass in turn.
package chunk
