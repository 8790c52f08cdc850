// Package sim plays many nodes that fetch one object at once, in a world of its
// own: links that flows share fairly, latency, a registry that lists at most 32
// providers, nodes that are slow, dead, that lie, that go and come back. What
// the nodes decide is decided by the policy of package chunk, the very code that
// the engine runs; a run with the same Config gives the same Result, always.
package sim
