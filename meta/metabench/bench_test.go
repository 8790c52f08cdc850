//go:build bench

package metabench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

var (
	names = flag.Int("names", 100_000, "files that are registered")
	stats = flag.Int("stats", 3000, "names that are looked up")
	out   = flag.String("json", "", "file for the figures; those of many nodes go into one more, -nodes.json")
	only  = flag.String("store", "", "what the names of the stores end with")
)

// bare is the store's own client, with as many records.
type bare interface {
	put(ctx context.Context, fields []string, values []string) error
	get(ctx context.Context, field string) error
	list(ctx context.Context) (int, error)
	remove(ctx context.Context, fields []string) error
	// cpu returns the seconds of CPU time that the store's servers have taken;
	// 0 where that is not known.
	cpu(ctx context.Context) (float64, error)
	close()
}

// figure is one thing that was measured, with ours and the bare commands.
type figure struct {
	Store, What, Unit string
	Ours, Bare, Ratio float64
}

// TestMeta prints a table of figures.
func TestMeta(t *testing.T) {
	var all []figure
	for _, s := range []struct {
		name  string
		start func() (meta.Slots, bare)
	}{
		{"etcd", func() (meta.Slots, bare) {
			srv := metatest.StartEtcd(t)
			s, err := etcd.Open(t.Context(), srv.URL("x"), etcd.Options{})
			require.NoError(t, err)
			return s, newBareEtcd(t, srv.Addr())
		}},
		{"redis", func() (meta.Slots, bare) { return openRedis(t, metatest.StartRedis(t).URL("x")) }},
		{"redis sentinel", func() (meta.Slots, bare) { return openRedis(t, metatest.StartSentinel(t).URL("x")) }},
		{"redis cluster", func() (meta.Slots, bare) { return openRedis(t, metatest.StartRedisCluster(t).URL("x")) }},
	} {
		if !strings.HasSuffix(s.name, *only) {
			continue
		}
		slots, b := s.start()
		all = append(all, measure(t, s.name, slots, b)...)
		b.close()
		require.NoError(t, slots.Close())
	}
	fmt.Printf("\n%-16s %-34s %12s %12s %8s\n", "store", "what", "ours", "bare", "ours/bare")
	for _, f := range all {
		fmt.Printf("%-16s %-34s %12.1f %12.1f %8.2f\n", f.Store, f.What+", "+f.Unit, f.Ours, f.Bare, f.Ratio)
	}
	keep(t, *out, map[string]any{"names": *names, "figures": all})
}

// keep writes figures into a file, if there is to be one.
func keep(t *testing.T, file string, figures any) {
	if file == "" {
		return
	}
	b, err := json.MarshalIndent(figures, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append(b, '\n'), 0o644))
}

func openRedis(t *testing.T, url string) (meta.Slots, bare) {
	s, err := redis.Open(t.Context(), url, redis.Options{})
	require.NoError(t, err)
	return s, newBareRedis(t, url)
}

func measure(t *testing.T, store string, slots meta.Slots, b bare) (all []figure) {
	ctx := t.Context()
	add := func(what, unit string, ours, bare float64) {
		all = append(all, figure{store, what, unit, ours, bare, ours / bare})
	}
	seconds := func(fn func() error) float64 {
		start := time.Now()
		require.NoError(t, fn())
		return time.Since(start).Seconds()
	}
	// both compares two ways by time and by what they cost, which says more on a
	// machine that others use, too.
	both := func(what string, ours, theirs func() error) {
		var took, server, client [2]float64
		for i, fn := range []func() error{ours, theirs} {
			s, err := b.cpu(ctx)
			require.NoError(t, err)
			c := cpuTime()
			took[i] = seconds(fn)
			client[i] = cpuTime() - c
			e, err := b.cpu(ctx)
			require.NoError(t, err)
			server[i] = e - s
		}
		add(what, "s", took[0], took[1])
		if server[1] > 0 {
			add(what+", CPU of the store", "s", server[0], server[1])
		}
		add(what+", CPU of the client", "s", client[0], client[1])
	}
	c := meta.NewCatalog(slots, meta.Options{})
	_, err := c.Join(ctx, meta.JoinOptions{Create: true})
	require.NoError(t, err)
	entries := make([]meta.Entry, *names)
	fields, values := make([]string, *names), make([]string, *names)
	for i := range entries {
		entries[i] = metatest.File(fmt.Sprintf("model-%07d.safetensors", i), 1)
		record, err := meta.MarshalEntry(entries[i], nil)
		require.NoError(t, err)
		fields[i], values[i] = entries[i].Name, string(record)
	}
	dir, err := c.Mkdir(ctx, meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)

	both("register", func() error { return c.LinkMany(ctx, dir.Inode, entries) },
		func() error { return b.put(ctx, fields, values) })
	entries, values = nil, nil

	ours, theirs := make([]float64, *stats), make([]float64, *stats)
	for i := range *stats { // in turns: whatever else the machine does befalls both
		name := fields[rand.IntN(len(fields))]
		ours[i] = seconds(func() error { _, err := c.Lookup(ctx, dir.Inode, name); return err })
		theirs[i] = seconds(func() error { return b.get(ctx, name) })
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	for _, p := range []int{50, 99} {
		i := *stats * p / 100
		add(fmt.Sprintf("cold stat p%d", p), "us", ours[i]*1e6, theirs[i]*1e6)
	}

	var peaks [2]float64
	both("ls -f", func() error {
		n, before := 0, resetPeak()
		_, err := c.List(ctx, dir.Inode, func(page []meta.Entry) error { n += len(page); return nil })
		peaks[0] = peak() - before
		require.Equal(t, *names, n)
		return err
	}, func() error {
		before := resetPeak()
		n, err := b.list(ctx)
		peaks[1] = peak() - before
		require.Equal(t, *names, n)
		return err
	})
	add("ls -f, memory on top", "MiB", max(peaks[0], 0.1), max(peaks[1], 0.1))

	both("delete", func() error {
		r, err := c.RemoveTree(ctx, meta.RootDir, "d", nil, nil)
		require.EqualValues(t, *names, r.Files)
		return err
	}, func() error { return b.remove(ctx, fields) })
	return all
}

// cpuTime returns the seconds of CPU time that this process has taken.
func cpuTime() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// resetPeak lets the peak of resident memory begin anew, and returns what is
// resident now, MiB.
func resetPeak() float64 {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	return status("VmRSS:")
}

func peak() float64 { return status("VmHWM:") }

func status(field string) (mib float64) {
	b, _ := os.ReadFile("/proc/self/status")
	_, v, _ := strings.Cut(string(b), field)
	var kib float64
	_, _ = fmt.Sscan(v, &kib)
	return kib / 1024
}
