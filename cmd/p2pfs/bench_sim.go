package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node"
)

const benchSimHelp = `Play many nodes that fetch one file at once, without any: links, the registry and
time are simulated, and what the nodes decide is decided by the very code that the
daemon runs. The same flags and seed print the same figures, always.

The measure is the floor: no way to spread a file is faster than one plain copy over
such a link and, for every doubling of the nodes that have a block, one block more.
SLOWEST and MEDIAN are of the nodes with which nothing is the matter.

With --against the simulation is held against real runs: what 'bench swarm --json'
printed, one run or several of one kind. It takes the receivers, the size, the way of
fetching and what the links were measured to give from them, and fails if the mean of
three simulations is more than 10 % of the time or 0.1 copies from the mean of the runs.

` + exitCodesHelp

func (a *app) newBenchSimCommand() *cobra.Command {
	cfg := node.SimConfig{}
	size, block := sizeFlag{bytes: 256 << 20, set: true}, sizeFlag{}
	rate, by, against := rateFlag{bits: 150_000_000}, "warm", ""
	c := &cobra.Command{
		Use:   "sim [--receivers R] [--size S] [--rate B] [--by warm|cat] [--churn F] [--slow F] [--zones Z] [--seed N]",
		Short: "Simulated nodes: one file to as many as you like",
		Long:  benchSimHelp,
		Example: `  p2pfs bench sim --receivers 1000 --size 16GB
  p2pfs bench sim --receivers 31 --zones 4 --json
  p2pfs bench sim --receivers 15 --by cat --slow 0.1 --seed 7 --json`,
		Args: argCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if against != "" {
				return a.simAgainst(against, cfg.Seed)
			}
			if by != "warm" && by != "cat" {
				return usagef("--by %s: want warm or cat", by)
			}
			cfg.Size, cfg.Block, cfg.Rate, cfg.Cat = size.bytes, block.bytes, float64(rate.bits)/8, by == "cat"
			r, err := node.Simulate(cfg)
			if err != nil {
				return usageError{err}
			}
			return a.printSim(r, cfg.Zones)
		},
	}
	f := c.Flags()
	f.IntVar(&cfg.Receivers, "receivers", 15, "`R` nodes that fetch the file, beside the one that has it")
	f.Var(&size, "size", "of the file")
	f.Var(&block, "block", "`SIZE` of one block, a power of two (default as nodes choose it: 2 MiB in files of up to 1 GiB, else 4 MiB)")
	f.Var(&rate, "rate", "of every link, each way, as in 150mbit or 1gbit")
	f.DurationVar(&cfg.Latency, "latency", 5*time.Millisecond, "`TIME` that anything takes from one node to another")
	f.StringVar(&by, "by", "warm", "`HOW` the nodes fetch it: warm or cat")
	f.Float64Var(&cfg.Churn, "churn", 0, "share `F` of the nodes that vanish once and come back")
	f.Float64Var(&cfg.Slow, "slow", 0, "share `F` of the nodes with a tenth of the rate")
	f.Float64Var(&cfg.Dead, "dead", 0, "share `F` of the nodes that are listed and answer nothing")
	f.Float64Var(&cfg.Lying, "lying", 0, "share `F` of the nodes that send wrong bytes")
	f.Float64Var(&cfg.Glance, "glance", 0, "share `F` of the nodes that read the first block and no more")
	f.IntVar(&cfg.Zones, "zones", 0, "`Z` zones that the nodes are spread over")
	f.Uint64Var(&cfg.Seed, "seed", 1, "`N` that all chance follows from")
	f.StringVar(&against, "against", "", "hold it against the real runs in `FILE`, in place of all flags but --seed")
	f.SortFlags = false
	return c
}

func (a *app) printSim(r node.SimResult, zones int) error {
	var err error
	if a.json {
		err = a.printJSON(r)
	} else {
		err = a.printf("%6d receivers  %10s in blocks of %s  floor %8.2f s  slowest %.3f  median %.3f  source sent %.3f copies  seed %d\n",
			r.Receivers, formatSize(r.SizeBytes), formatSize(r.BlockBytes), r.FloorSeconds, r.SlowestOverFloor, r.MedianOverFloor, r.SourceCopies, r.Seed)
		if err == nil && zones > 1 {
			err = a.printf("%6d zones      %.3f copies came into one from others at most\n", zones, r.CrossZoneCopies)
		}
	}
	if err == nil && !r.Valid {
		err = fmt.Errorf("invalid: not every receiver got every block")
	}
	return err
}
