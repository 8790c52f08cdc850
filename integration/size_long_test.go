//go:build long

package integration

// How much make test-long does.
const (
	killStride    = 1
	powerStride   = 1
	publishRounds = 10_000
	oracleSteps   = 10_000
)
