//go:build rdma && bench

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	benchRounds = 5
	benchSize   = 256 << 20
	benchPiece  = 1 << 20 // of one READ
	benchDepth  = 16      // READs in flight: four blocks of 4 MiB
)

// benchRow is one way to move benchSize bytes, and what each round gave in
// MiB/s.
type benchRow struct {
	name   string
	before func() // not measured
	run    func() float64
	rates  []float64
}

func (r *benchRow) median() float64 {
	s := slices.Sorted(slices.Values(r.rates))
	return s[len(s)/2]
}

// TestBenchRDMA compares ways to move 256 MiB between two devices, in turn, and
// reports the medians of five rounds.
func TestBenchRDMA(t *testing.T) {
	c, a, b := rdmaPair(t, rdmaA+":0", rdmaB+":0")
	src, want := randomFile(t, c, "model", benchSize)
	a.register(src, "placed")
	must(t, "cp", src, a.path("written"))
	perf := &perftest{t: t}
	rows := []*benchRow{
		{name: "ib_read_bw, 16 READs of 1 MiB", run: func() float64 { return perf.readBW("rxe0", "rxe1", rdmaB) }},
		{name: "  by our clock, with its start: at least", run: func() float64 { return perf.whole }},
		{name: "ib_read_bw -e, which sleeps meanwhile", run: func() float64 { return perf.readBW("rxe0", "rxe1", rdmaB, "-e") }},
		{name: "a bare loop of READs, rdma/verbs/ib", run: func() float64 { return builtBench(t, "ib.test", "BenchmarkRead") }},
		{name: "rdma/verbs, 4 blocks of 4 MiB", run: func() float64 { return builtBench(t, "verbs.test", "BenchmarkFetch") }},
	}
	for _, name := range []string{"written", "placed"} {
		path := b.path(name)
		require.Equal(t, want, sum(t, path)) // what follows finds it registered and summed
		drop := func() { b.must("drop", path) }
		rows = append(rows,
			&benchRow{name: name + ": into the other node's cache", before: drop, run: func() float64 {
				return timed(func() { b.must("warm", path) })
			}},
			&benchRow{name: name + ": through the mount", before: drop, run: func() float64 {
				return timed(func() { must(t, "dd", "if="+path, "of=/dev/null", "bs=4M", "status=none") })
			}})
	}
	base := rows[0]
	if os.Getenv("P2PFS_GUEST_SIW") != "" {
		rows = append(rows, &benchRow{name: "ib_read_bw on siw, which p2pfs does not use", run: func() float64 { return perf.readBW("siw0", "siw1", "10.78.0.2", "-R") }})
	}
	for range benchRounds {
		for _, r := range rows {
			if r.before != nil {
				r.before()
			}
			r.rates = append(r.rates, r.run())
		}
	}
	require.Zero(t, tcpBytes(b.status()), "bytes came over TCP")
	report(t, "%-45s %9s %9s   %s", "256 MiB, medians of 5", "MiB/s", "ratio", "rounds")
	for _, r := range rows {
		report(t, "%-45s %9.0f %9.2f   %.0f", r.name, r.median(), r.median()/base.median(), r.rates)
	}
	report(t, "ib_read_bw was run again %d times because it measured nothing", perf.again)
}

func timed(f func()) float64 {
	start := time.Now()
	f()
	return benchSize / float64(1<<20) / time.Since(start).Seconds()
}

// perftest runs perftest's READ. It finds the pace of its clock anew each time,
// and on a busy machine says 0 where it could not; then it is run again.
type perftest struct {
	t     *testing.T
	again int     // how often it said nothing
	whole float64 // of the last one that did, from the program's start to its end
}

func (p *perftest) readBW(client, server, addr string, more ...string) float64 {
	for range 10 {
		if rate := p.once(client, server, addr, more...); rate > 0 {
			return rate
		}
		p.again++
	}
	require.FailNow(p.t, "ib_read_bw measures nothing")
	return 0
}

// once reads from one device to another.
func (p *perftest) once(client, server, addr string, more ...string) float64 {
	t := p.t
	args := func(device string, rest ...string) []string {
		all := []string{"-F", "-d", device, "-s", itoa(benchPiece), "-n", itoa(benchSize / benchPiece), "-t", itoa(benchDepth), "-o", itoa(benchDepth), "--output=bandwidth"}
		if !slices.Contains(more, "-R") { // which finds it by itself
			all = append(all, "-x", ipIndex(t, device))
		}
		return append(append(all, more...), rest...)
	}
	s := launch(t, exec.Command("ib_read_bw", args(server)...))
	var r result
	eventually(t, 120*time.Second, "ib_read_bw", func() bool {
		r = runCmd(t, commandLimit, exec.Command("ib_read_bw", args(client, addr)...))
		return r.code == 0 || !s.alive()
	})
	require.Zero(t, r.code, r.String())
	s.finish(t, 60*time.Second)
	words := strings.Fields(string(r.out))
	require.NotEmpty(t, words, r.String())
	rate, err := strconv.ParseFloat(words[len(words)-1], 64)
	require.NoError(t, err, r.String())
	if rate > 0 {
		p.whole = benchSize / float64(1<<20) / r.took.Seconds()
	}
	return rate
}

// ipIndex returns the index of a device's IPv4 address.
func ipIndex(t *testing.T, device string) string {
	files, err := filepath.Glob("/sys/class/infiniband/" + device + "/ports/1/gids/*")
	require.NoError(t, err)
	for _, f := range files {
		if gid, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(gid), "0000:0000:0000:0000:0000:ffff:") {
			return filepath.Base(f)
		}
	}
	require.FailNow(t, fmt.Sprintf("%s has no IPv4 address", device))
	return ""
}

var benchRate = regexp.MustCompile(`([0-9.]+) MiB/s`)

// builtBench runs a package's own benchmark, which was built for the guest.
func builtBench(t *testing.T, name, bench string) float64 {
	out := must(t, filepath.Join(os.Getenv("P2PFS_BENCH_DIR"), name), "-test.run=^$", "-test.bench=^"+bench+"$", "-test.benchtime=1x")
	m := benchRate.FindStringSubmatch(out)
	require.NotNil(t, m, out)
	rate, err := strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	return rate
}
