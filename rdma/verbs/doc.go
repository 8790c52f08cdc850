// Package verbs moves blocks by one-sided RDMA READ: the reader's network card
// takes them out of the provider's memory, and no code of the provider runs.
//
// A Host is this node's devices, opened once. A Handler serves: it maps the
// files that a chunk.Source lends read-only, registers them part by part in a
// budgeted cache, and tells readers where a block lies. A Client reads: it is a
// chunk.Transport whose memory was registered once.
//
// # Wire protocol, version 2
//
// A link is one reliable connection between two devices and the TCP connection
// it was agreed on, which carries its control messages. Links are opened by an
// HTTP request on the port that serves blocks:
//
//	GET /p2pfs/v1/verbs HTTP/1.1
//	Connection: Upgrade
//	Upgrade: p2pfs-verbs
//	P2pfs-Proto, -Cluster, -Node, -Incarnation, -From, -Token: see rdma.Claim
//	P2pfs-Verbs: the reader's end, in hexadecimal; see endpoint
//
// and the answer is 101 with P2pfs-Node, P2pfs-Incarnation and P2pfs-Verbs, or
// a status with a short text. From then on both sides send frames: their length
// in 4 bytes, then messages, each with its length in 4 bytes and a type in one
// (little endian, see wire.go). The reader asks for blocks; the provider grants a
// lease on them, with address, key, length and sum of each, or refuses; the
// reader READs, checks the sums, and gives the lease back; the provider's answer
// to that says whether the sources had changed meanwhile. There is no such answer
// for a source that cannot change.
//
// Messages are few: those that can wait for others of their link go in one frame
// with them, and a reader that fetches an object's blocks in order asks for the
// next leases ahead, many at once. A provider grants ahead what it can to a node
// that reads the object alone; where several do, each block is asked for, so
// that they get different ones.
//
// # Leases
//
// A lease ends when it is given back, with its link, or when its time on the
// provider's clock is over. In the last case the provider moves its end of the
// connection to the error state before it lets go of the memory: a READ that
// comes too late fails, and cannot bring another block's bytes. The reader
// measures the time from before it asked, and believes no byte that came later.
package verbs
