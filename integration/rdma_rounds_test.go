//go:build rdma && !long

package integration

// rdmaKillRounds is how often a node is killed in the middle of READs: an even
// number.
const rdmaKillRounds = 20
