package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/swarm"
	"github.com/p2pfs/p2pfs/node"
)

// How far a simulation may be from real runs, and how many are made.
const (
	mostApartTime   = 0.1 // of the real time
	mostApartCopies = 0.1
	simsAgainst     = 3
)

// lockstep is real runs beside simulations of the same; also its JSON.
type lockstep struct {
	Receivers        int     `json:"receivers"`
	SizeBytes        int64   `json:"size_bytes"`
	By               string  `json:"by"`
	RealRuns         int     `json:"real_runs"`
	RealSeconds      float64 `json:"real_slowest_seconds"` // means, as all that follows
	SimSeconds       float64 `json:"simulated_slowest_seconds"`
	RealCopies       float64 `json:"real_source_copies"`
	SimCopies        float64 `json:"simulated_source_copies"`
	TimeApart        float64 `json:"time_apart"` // of the real time; below zero: the simulation is faster
	CopiesApart      float64 `json:"copies_apart"`
	Valid            bool    `json:"valid"`
	goodput, latency float64 // bytes and seconds
}

// simAgainst simulates what a file of real runs was, and holds one against the other.
func (a *app) simAgainst(file string, seed uint64) error {
	runs, err := readRuns(file)
	if err != nil {
		return err
	}
	l, err := compareRuns(runs, seed)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(l)
	} else {
		err = a.printf("%6d receivers  %10s by %s  real %.2f s, %.3f copies (mean of %s)  simulated %.2f s, %.3f copies  apart %+.1f %%, %+.3f copies\n",
			l.Receivers, formatSize(l.SizeBytes), l.By, l.RealSeconds, l.RealCopies, plural(int64(l.RealRuns), "run"), l.SimSeconds, l.SimCopies, 100*l.TimeApart, l.CopiesApart)
	}
	if err == nil && !l.Valid {
		err = fmt.Errorf("the simulation is %.1f %% and %.3f copies from real runs; at most %.0f %% and %.1f copies are taken for the same", 100*l.TimeApart, l.CopiesApart, 100*mostApartTime, mostApartCopies)
	}
	return err
}

// readRuns reads what bench swarm printed: JSON objects, one after the other.
func readRuns(file string) (runs []swarm.Result, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read real runs: %w", err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var r swarm.Result
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return runs, nil
		} else if err != nil {
			return nil, fmt.Errorf("read real runs of %s: %w", file, err)
		}
		runs = append(runs, r)
	}
}

// compareRuns simulates the runs, which must be of one kind and valid.
func compareRuns(runs []swarm.Result, seed uint64) (l lockstep, err error) {
	if len(runs) == 0 {
		return l, usagef("--against: no run is there")
	}
	first := runs[0]
	l = lockstep{Receivers: first.Receivers, SizeBytes: first.SizeBytes, By: first.By, RealRuns: len(runs)}
	for _, r := range runs {
		switch {
		case !r.Valid:
			return l, usagef("--against: a run is invalid: it left %.0f %% of the processors idle", 100*r.CPUIdle)
		case r.Receivers != l.Receivers || r.SizeBytes != l.SizeBytes || r.By != l.By || r.RateBits != first.RateBits || r.Blocks != first.Blocks:
			return l, usagef("--against: the runs are not of one kind")
		case r.CopySeconds <= 0 || r.SlowestSeconds <= 0 || r.Blocks <= 0:
			return l, usagef("--against: a run lacks its figures")
		}
		n := float64(len(runs))
		l.goodput += float64(r.SizeBytes) / r.CopySeconds / n
		l.latency += r.LatencySeconds / n
		l.RealSeconds += r.SlowestSeconds / n
		l.RealCopies += r.SourceCopies / n
	}
	for i := range uint64(simsAgainst) {
		s, err := node.Simulate(node.SimConfig{
			Receivers: l.Receivers, Size: l.SizeBytes, Rate: l.goodput, Cat: l.By == "cat", Seed: seed + i,
			Latency: time.Duration(l.latency * float64(time.Second)),
		})
		switch {
		case err != nil:
			return l, usageError{err}
		case (s.SizeBytes+s.BlockBytes-1)/s.BlockBytes != first.Blocks:
			return l, usagef("--against: the runs had %d blocks, of which nodes make %d bytes each today", first.Blocks, s.BlockBytes)
		}
		l.SimSeconds += s.SlowestOverFloor * s.FloorSeconds / simsAgainst
		l.SimCopies += s.SourceCopies / simsAgainst
	}
	l.TimeApart = l.SimSeconds/l.RealSeconds - 1
	l.CopiesApart = l.SimCopies - l.RealCopies
	l.Valid = math.Abs(l.TimeApart) <= mostApartTime && math.Abs(l.CopiesApart) <= mostApartCopies
	return l, nil
}
