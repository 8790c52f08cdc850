package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/netlab"
	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/swarm"
)

const benchSwarmHelp = `Start real nodes on this machine, each in a network of its own that one link joins
to the others, have all but one fetch the same new file at one moment, and show how
long that took. All links send and receive at the given rate.

The measure is the floor: no way to spread a file is faster than one plain copy over
such a link and, for every doubling of the nodes that have a block, one block more.
The plain copy is made in the same run.

By 'warm' each node is asked to bring all of the file, as 'p2pfs warm' does; by 'cat'
a process on each node reads the file from its begin to its end. The nodes have the
default flags. The bytes on every node are compared with the source's.

It needs root, the programs ip, tc and nsenter, FUSE, and room for the file once for
each node. All nodes share this machine's processors: a run that leaves less than a
quarter of them idle says 'invalid' and fails. Nothing of a run stays, whatever it
ends by; the files of one that was killed are removed by the next.

` + exitCodesHelp

func (a *app) benchSwarmCommand() *cobra.Command {
	cfg := swarm.Config{Say: func(string) {}}
	size, rate := sizeFlag{bytes: 256 << 20, set: true}, rateFlag{bits: 150_000_000}
	c := &cobra.Command{
		Use:   "swarm [--receivers R] [--size S] [--rate B] [--by warm|cat] [--peers]",
		Short: "Real nodes on shaped links: one file to many at once",
		Long:  benchSwarmHelp,
		Example: `  p2pfs bench swarm --receivers 15 --size 256MiB --rate 150mbit
  p2pfs bench swarm --receivers 7 --by cat --peers --json`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Size, cfg.Rate = size.bytes, rate.bits
			return a.benchSwarm(cmd.Context(), cfg)
		},
	}
	f := c.Flags()
	f.IntVar(&cfg.Receivers, "receivers", 7, "`R` nodes that fetch the file, beside the one that has it")
	f.Var(&size, "size", "of the file")
	f.Var(&rate, "rate", "of every link, each way, as in 150mbit or 1gbit")
	f.StringVar(&cfg.By, "by", "warm", "`HOW` the nodes fetch it: warm or cat")
	f.BoolVar(&cfg.Peers, "peers", false, "measure one HTTP source for all on the same links, too, and p2pstore, over TCP into memory, where python3 has it")
	f.StringVar(&cfg.Dir, "dir", "", "keep the files of all nodes in a new directory in `DIR` while it runs (default: that of temporary files)")
	f.StringVar(&cfg.Trace, "trace", "", "write every request for a block to `FILE`, a JSON object a line")
	f.Uint64Var(&cfg.Seed, "seed", 0, "`N` that the bytes of the file follow from (default: a random one)")
	f.SortFlags = false
	return c
}

func (a *app) benchSwarm(ctx context.Context, cfg swarm.Config) error {
	switch {
	case cfg.Receivers < 1 || cfg.Receivers >= netlab.MostHosts:
		return usagef("--receivers %d: want 1 to %d", cfg.Receivers, netlab.MostHosts-1)
	case cfg.Size < 1:
		return usagef("--size: the file needs a byte at least")
	case cfg.By != "warm" && cfg.By != "cat":
		return usagef("--by %s: want warm or cat", cfg.By)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var err error
	if cfg.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's own file: %w", err)
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	if isTerminal(a.err) {
		cfg.Say = func(s string) { fmt.Fprintf(a.err, "%s\n", s) }
	}
	r, err := swarm.Run(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("stopped: %w", errors.Join(context.Canceled, err))
		}
		return err
	}
	if a.json {
		err = a.printJSON(r)
	} else {
		err = a.printSwarm(r)
	}
	if err == nil && !r.Valid {
		err = fmt.Errorf("invalid: the run left %.0f %% of the processors idle, and a figure needs %.0f %%; fewer receivers or a lower rate need less", 100*r.CPUIdle, 100*swarm.LeastIdle)
	}
	return err
}

func (a *app) printSwarm(r swarm.Result) error {
	err := a.printf("%s of %s each way, %s in %s, by %s\none plain copy %.2f s (%s), floor %.2f s\n%.0f %% of the processors idle, the nodes took %.1f s of them\n\n",
		plural(int64(r.Receivers), "receiver"), formatRate(r.RateBits), formatSize(r.SizeBytes), plural(r.Blocks, "block"), r.By,
		r.CopySeconds, formatRate(int64(float64(r.SizeBytes)*8/r.CopySeconds)), r.FloorSeconds, 100*r.CPUIdle, r.NodesCPU)
	if err != nil {
		return err
	}
	var t table
	t.row("", "SLOWEST", "OVER FLOOR", "MEDIAN", "OVER FLOOR", "SOURCE SENT")
	row := func(name string, slowest, slowestOver, median, medianOver, copies float64, valid bool) {
		if !valid {
			name += " (invalid)"
		}
		sent := "-"
		if copies > 0 {
			sent = fmt.Sprintf("%.2f copies", copies)
		}
		t.row(name, fmt.Sprintf("%.2f s", slowest), fmt.Sprintf("%.2f", slowestOver), fmt.Sprintf("%.2f s", median),
			fmt.Sprintf("%.2f", medianOver), sent)
	}
	row("p2pfs", r.SlowestSeconds, r.SlowestOver, r.MedianSeconds, r.MedianOver, r.SourceCopies, r.Valid)
	for _, p := range r.Peers {
		if p.Note != "" {
			t.row(p.Name, p.Note)
			continue
		}
		row(p.Name, p.SlowestSeconds, p.SlowestOver, p.MedianSeconds, p.MedianOver, p.SourceCopies, p.Valid)
	}
	return t.print(a.out)
}
