package integration

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/integration/oracle"
)

// oracleKinds are the steps that make up a run.
var oracleKinds = []oracle.Kind{
	oracle.Register, oracle.Join, oracle.Replace, oracle.Unregister, oracle.Drop, oracle.Collect,
	oracle.Publish, oracle.Overwrite, oracle.Append, oracle.Patch, oracle.Truncate, oracle.Save, oracle.Race, oracle.Torn,
	oracle.Mkdir, oracle.Rmdir, oracle.Unlink, oracle.Rename, oracle.Symlink, oracle.Chmod, oracle.Utimens,
	oracle.Kill, oracle.CutStore, oracle.CutPeers, oracle.StoreStop, oracle.StoreRestart, oracle.StoreWipe,
}

// loseEvery is after how many steps a store of several processes loses one that
// leads, beside what the steps do to it.
const loseEvery = 60

// enough is from how many steps on each kind must have occurred.
const enough = 1000

// What four nodes show, whatever happens to them, is what SEMANTICS.md allows.
// P2PFS_ORACLE_STEPS, _SEED, _WITHOUT (kinds, by commas) and _REPLAY (a file of
// steps) say which steps, _STORE (one of storeKinds) on what.
// R1 R3 W1 W2 W4 W5 W6 W7 W10 W12 N1 N2 N3 N4 N5 N6 N7 A1 A3 K1 K2 K3 K4 K5 O1 O2 O3 O4 C1 C2
func TestOracle(t *testing.T) {
	t.Parallel()
	oracleOn(t, cmp.Or(os.Getenv("P2PFS_ORACLE_STORE"), "etcd"), oracleSteps)
}

// The same on Redis.
func TestOracleOnRedis(t *testing.T) {
	t.Parallel()
	oracleOn(t, "redis", oracleStepsOnRedis)
}

// A few steps on the stores of several processes, where a restart of the store is
// the loss of one that leads.
func TestOracleOnMany(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"etcd3", "sentinel", "cluster"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			oracleOn(t, store, oracleStepsOnMany)
		})
	}
}

func oracleOn(t *testing.T, store string, steps uint64) {
	seeds := oracleSeeds()
	if os.Getenv("P2PFS_ORACLE_SEED") != "" {
		seeds = []uint64{envNumber(t, "P2PFS_ORACLE_SEED", 0)}
	}
	if file := os.Getenv("P2PFS_ORACLE_REPLAY"); file != "" {
		newOracleRun(t, store).replay(t, file, seeds[0])
		return
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			newOracleRun(t, store).random(t, seed, int(envNumber(t, "P2PFS_ORACLE_STEPS", steps)))
		})
	}
}

// random does steps of a seed, ends all faults, and looks at everything.
func (r *oracleRun) random(t *testing.T, seed uint64, steps int) {
	kinds := slices.DeleteFunc(slices.Clone(oracleKinds), func(k oracle.Kind) bool {
		return slices.Contains(strings.Split(os.Getenv("P2PFS_ORACLE_WITHOUT"), ","), string(k))
	})
	began := time.Now()
	g := oracle.NewGenerator(seed, r.model, kinds, steps, oracleBlock, oracleChunk)
	most := 1
	for i := range steps {
		if i%loseEvery == loseEvery-1 && len(r.store.members) > 1 && r.model.Lives {
			if err := r.do(oracle.Step{Do: oracle.StoreRestart}); err != nil {
				r.report(seed, err)
			}
		}
		if err := r.do(g.Next()); err != nil {
			r.report(seed, err)
		}
		most = max(most, r.model.Worlds())
	}
	for _, s := range g.Finish() {
		if err := r.do(s); err != nil {
			r.report(seed, err)
		}
	}
	for path, sum := range r.sources {
		require.Equal(t, sum, hexOf(content(t, path)), "%s was registered, and is not what it was (K5)", path)
	}
	t.Logf("report: seed %d, %d steps in %v, at most %d worlds, a stat elsewhere at most %v behind: %s",
		seed, steps, time.Since(began).Round(time.Second), most, r.stale.Round(time.Millisecond), r.summary())
	if steps >= enough {
		for _, k := range slices.Concat(kinds, []oracle.Kind{oracle.Restart, oracle.RestartEmpty, oracle.Heal, oracle.StoreStart, oracle.Check}) {
			require.NotZero(t, r.counts[k], "no step of the kind %s", k)
		}
	}
}

// summary is how many steps of each kind there were, how many of them failed as
// they may, and their time.
func (r *oracleRun) summary() string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(r.counts)) {
		one := fmt.Sprintf("%s %d", k, r.counts[k])
		if r.fails[k] > 0 {
			one += fmt.Sprintf(" (%d refused)", r.fails[k])
		}
		all = append(all, fmt.Sprintf("%s in %.1fs", one, r.took[k].Seconds()))
	}
	return strings.Join(all, ", ")
}

func (r *oracleRun) replay(t *testing.T, file string, seed uint64) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		step, err := oracle.ParseStep(s.Text())
		require.NoError(t, err)
		if err := r.do(step); err != nil {
			r.report(seed, err)
		}
	}
	t.Log(r.summary())
}
