// Package node puts one running node together from the parts: the local cache,
// the metadata store, the engine, the transports and the mount. It is what
// `p2pfs mount` starts.
//
// It also answers commands over the node's owner-only control socket, answers
// other nodes beside the blocks themselves (what is held here, which checksums
// are bound), and registers files in place. No policy lives here: which block
// comes from whom is chunk's, what a name means is meta's.
package node
