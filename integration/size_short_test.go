//go:build !long

package integration

// How much make test does; make test-long does more.
const (
	killStride    = 3    // a fault at every third step of a publish
	powerStride   = 9    // the same, with the power going
	publishRounds = 2000 // publishes that another node opens at once
	oracleSteps   = 2000

	oracleStepsOnRedis = 500
	oracleStepsOnMany  = 150
)

// oracleSeeds are those of the runs of random steps.
func oracleSeeds() []uint64 { return []uint64{1} }
