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
	out   = flag.String("json", "", "file for the figures")
	only  = flag.String("store", "", "part of the name of the stores")
)

// bare is the store's own client, with as many records.
type bare interface {
	put(ctx context.Context, fields []string, values []string) error
	get(ctx context.Context, field string) error
	list(ctx context.Context) (int, error)
	remove(ctx context.Context, fields []string) error
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
		if !strings.Contains(s.name, *only) {
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
	if *out != "" {
		b, err := json.MarshalIndent(map[string]any{"names": *names, "figures": all}, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*out, append(b, '\n'), 0o644))
	}
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

	add("register", "s", seconds(func() error { return c.LinkMany(ctx, dir.Inode, entries) }),
		seconds(func() error { return b.put(ctx, fields, values) }))
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

	n := 0
	before := resetPeak()
	ls := seconds(func() error {
		_, err := c.List(ctx, dir.Inode, func(page []meta.Entry) error { n += len(page); return nil })
		return err
	})
	mem := max(peak()-before, 0.1)
	require.Equal(t, *names, n)
	before = resetPeak()
	add("ls -f", "s", ls, seconds(func() error {
		n, err := b.list(ctx)
		require.Equal(t, *names, n)
		return err
	}))
	add("ls -f, memory on top", "MiB", mem, max(peak()-before, 0.1))

	add("delete", "s", seconds(func() error {
		r, err := c.RemoveTree(ctx, meta.RootDir, "d", nil, nil)
		require.EqualValues(t, *names, r.Files)
		return err
	}), seconds(func() error { return b.remove(ctx, fields) }))
	return all
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
