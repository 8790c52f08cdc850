// Package chunk owns the words of p2pfs and the engine that brings blocks to
// this machine.
//
// An object is immutable bytes with a random 128-bit id: an id never stands
// for two contents. Its bytes are cut into chunks (64 MiB by default: the unit
// of the registry and of read-ahead), and chunks into blocks (4 MiB by
// default: the unit of exchange, of checksums, of the local map and of the
// all-zero bit).
//
// The package imports none of ours. What the engine needs from the outside
// (local bytes, transports, the registry, other nodes) it states as small
// interfaces in seams.go; cache, rdma, meta and node satisfy them.
package chunk
