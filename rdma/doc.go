// Package rdma moves blocks between two nodes.
//
// It holds what every transport shares: who a request is from and for
// (Credentials, Authorizer), the memory that blocks land in (Arena), and the
// counters (Counters). The transports themselves are subpackages: rdma/tcp,
// and rdmatest's fake one-sided one. Each of them satisfies chunk.Transport on
// the reading side and consumes a chunk.Source on the serving side.
//
// The package knows nothing of names, of the metadata store or of how bytes
// are kept on disk.
package rdma
