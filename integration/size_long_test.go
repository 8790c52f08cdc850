//go:build long

package integration

// How much make test-long does.
const (
	killStride    = 1
	powerStride   = 1
	publishRounds = 10_000
	oracleSteps   = 2000

	oracleStepsOnRedis = 2000
	oracleStepsOnMany  = 1000
)

// oracleSeeds are those of the runs of random steps, one after the other.
func oracleSeeds() []uint64 { return []uint64{2, 4, 5, 6} }
