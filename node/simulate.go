package node

import "github.com/p2pfs/p2pfs/chunk/sim"

// SimConfig is the world of a simulation, SimResult what came of it.
type (
	SimConfig = sim.Config
	SimResult = sim.Result
)

// Simulate plays many nodes that fetch one object at once, under the policy
// that a Node runs.
func Simulate(cfg SimConfig) (SimResult, error) { return sim.Run(cfg) }
