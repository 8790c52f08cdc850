// Package sim plays many nodes that fetch one object at once, in a world of its
// own: links that flows share fairly, latency, a registry that lists at most 32
// providers, nodes that are slow, dead, that lie, that go and come back. What
// the nodes decide is decided by the policy of package chunk, the very code that
// the engine runs; a run with the same Config gives the same Result, always.
//
// A node is in two parts. What it serves and tells (node) is played in the order
// of time, for all nodes together, since the links of all hang together. What it
// decides (mind) hears of the world by letters and acts on it by orders, none of
// which takes effect sooner than what is least between nodes: minds think side by
// side, and while the world goes on (turns.go).
package sim
