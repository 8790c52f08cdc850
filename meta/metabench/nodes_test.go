//go:build bench

package metabench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

var (
	nodes  = flag.Int("nodes", 1000, "nodes that are simulated")
	window = flag.Duration("window", 20*time.Second, "how long they are looked at")
)

// patience is how long the store may take while nodes join.
const patience = time.Minute

// process is a server of a store.
type process interface{ PID() int }

// TestMetaNodes prints what nodes cost that renew their records and watch a
// directory, each with connections of its own, while their number grows.
func TestMetaNodes(t *testing.T) {
	type store struct {
		servers []process
		open    func() (meta.Slots, error)
	}
	over := func(url string, servers ...process) store {
		return store{servers, func() (meta.Slots, error) {
			return redis.Open(t.Context(), url, redis.Options{ReadTimeout: patience, WriteTimeout: patience})
		}}
	}
	var all []nodesFigure
	for _, s := range []struct {
		name  string
		start func() store
	}{
		{"etcd", func() store {
			srv := metatest.StartEtcd(t)
			return store{[]process{srv}, func() (meta.Slots, error) {
				return etcd.Open(t.Context(), srv.URL("x"), etcd.Options{ReadTimeout: patience, WriteTimeout: patience})
			}}
		}},
		{"redis", func() store { srv := metatest.StartRedis(t); return over(srv.URL("x"), srv) }},
		{"redis sentinel", func() store {
			srv := metatest.StartSentinel(t)
			var all []process
			for _, r := range srv.All() {
				all = append(all, r)
			}
			return over(srv.URL("x"), all...)
		}},
		{"redis cluster", func() store {
			srv := metatest.StartRedisCluster(t)
			var all []process
			for _, r := range srv.Servers {
				all = append(all, r)
			}
			return over(srv.URL("x"), all...)
		}},
	} {
		if !strings.HasSuffix(s.name, *only) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			st := s.start()
			f := newFleet(t, st.open)
			fmt.Printf("\n%-16s %8s %26s %26s %20s\n", s.name, "nodes", "store, us a node second", "nodes, us a node second", "seen by all, ms")
			before := cpuOf(t, st.servers)
			time.Sleep(*window)
			idle := (cpuOf(t, st.servers) - before).Seconds() / window.Seconds()
			for _, n := range []int{*nodes / 10, *nodes / 4, *nodes} {
				f.grow(n)
				server, client, start := cpuOf(t, st.servers), cpuTime(), time.Now()
				time.Sleep(*window)
				took := time.Since(start).Seconds() * float64(n)
				perServer := ((cpuOf(t, st.servers) - server).Seconds() - idle*time.Since(start).Seconds()) / took * 1e6
				perClient := (cpuTime() - client) / took * 1e6
				fig := nodesFigure{s.name, n, perServer, perClient, float64(f.seen().Microseconds()) / 1e3}
				fmt.Printf("%-16s %8d %26.0f %26.0f %20.0f\n", "", n, fig.StoreUs, fig.NodeUs, fig.SeenMs)
				all = append(all, fig)
			}
			f.stop()
		})
	}
	if *out != "" {
		keep(t, strings.TrimSuffix(*out, ".json")+"-nodes.json", all)
	}
}

// nodesFigure is what so many nodes cost, each of them and for each second, and how
// long it took until all had seen a publish.
type nodesFigure struct {
	Store                   string
	Nodes                   int
	StoreUs, NodeUs, SeenMs float64
}

// cpuOf returns the CPU time that processes have taken.
func cpuOf(t *testing.T, servers []process) (sum time.Duration) {
	for _, s := range servers {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(b), ") ")
		for _, f := range strings.Fields(rest)[11:13] { // utime, stime in hundredths of a second
			n, err := strconv.Atoi(f)
			require.NoError(t, err)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// fleet is many nodes that run and are not used.
type fleet struct {
	t     *testing.T
	open  func() (meta.Slots, error)
	cat   *meta.Catalog // of who publishes
	dir   meta.InodeID
	ctx   context.Context
	end   context.CancelFunc
	wg    sync.WaitGroup
	told  chan string
	n     int
	round int
	close []func()
}

func newFleet(t *testing.T, open func() (meta.Slots, error)) *fleet {
	f := &fleet{t: t, open: open, told: make(chan string, 100_000)}
	f.ctx, f.end = context.WithCancel(t.Context())
	s, err := open()
	require.NoError(t, err)
	f.close = append(f.close, func() { _ = s.Close() })
	f.cat = meta.NewCatalog(s, meta.Options{})
	metatest.Join(t, f.cat)
	d, err := f.cat.Mkdir(f.ctx, meta.RootDir, "d", meta.Attrs{Mode: 0o755})
	require.NoError(t, err)
	f.dir = d.Inode
	return f
}

// grow starts nodes until there are n.
func (f *fleet) grow(n int) {
	var g errgroup.Group
	g.SetLimit(flights)
	var mu sync.Mutex
	for ; f.n < n; f.n++ {
		i := f.n
		g.Go(func() error {
			s, err := f.open()
			if err != nil {
				return err
			}
			cat := meta.NewCatalog(s, meta.Options{})
			ctx, cancel := context.WithTimeout(f.ctx, patience)
			defer cancel()
			if _, err := cat.Join(ctx, meta.JoinOptions{}); err != nil {
				return err
			}
			m, err := cat.JoinNode(ctx, meta.NodeInfo{Node: chunk.NewNodeID(), Incarnation: 1, Name: fmt.Sprint(i), Host: "h"}, 0)
			if err != nil {
				return err
			}
			v, err := meta.NewView(meta.ViewConfig{Catalog: cat, Timeout: patience, OnChange: func(c meta.Change) { f.told <- c.Name }})
			if err != nil {
				return err
			}
			if _, err := v.List(ctx, f.dir); err != nil {
				return err
			}
			f.wg.Go(func() { _ = m.Run(f.ctx) })
			f.wg.Go(func() { _ = v.Run(f.ctx) })
			mu.Lock()
			defer mu.Unlock()
			f.close = append(f.close, func() { _ = v.Close(); _ = s.Close() })
			return nil
		})
	}
	require.NoError(f.t, g.Wait())
	f.seen() // all watch
}

// seen publishes a name, and returns how long it took until all nodes knew.
func (f *fleet) seen() time.Duration {
	f.round++
	name, start := fmt.Sprint("f", f.round), time.Now()
	_, err := f.cat.Link(f.ctx, f.dir, metatest.File(name, 1))
	require.NoError(f.t, err)
	for n := 0; n < f.n; {
		select {
		case got := <-f.told:
			if got == name || got == "" { // or all of it is void
				n++
			}
		case <-time.After(patience):
			f.t.Fatalf("%d of %d nodes have not seen %s", f.n-n, f.n, name)
		}
	}
	return time.Since(start)
}

func (f *fleet) stop() {
	f.end()
	f.wg.Wait()
	for _, fn := range f.close {
		fn()
	}
}
