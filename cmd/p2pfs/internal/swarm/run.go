package swarm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/netlab"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// fileName is the name of the file in the mount.
const fileName = "model.bin"

// startAtOnce is how many daemons are started side by side.
const startAtOnce = 4

// Config is what a run is told.
type Config struct {
	Binary    string // of p2pfs
	Receivers int
	Size      int64  // bytes
	Rate      int64  // of every link, each way, bits per second
	By        string // warm or cat
	Peers     bool   // other ways, over the same links
	Dir       string // where the files of all nodes lie; empty: that of temporary files
	Seed      uint64 // of the file's bytes
	Trace     string // file for every request for a block; empty: none
	// Say is told what is being done; not concurrently.
	Say func(string)
}

// bench is one run under way.
type bench struct {
	Config
	lab       *netlab.Lab
	hosts     []*netlab.Host // the source's first
	file      string
	digest    string
	source    *node
	receivers []*node
	began     time.Time
	result    Result
}

// Run measures one swarm. Whatever happens, nothing of it stays. The result of
// a run that left too little of the processors idle is not Valid.
func Run(ctx context.Context, cfg Config) (_ Result, err error) {
	b := &bench{Config: cfg}
	b.result = Result{Receivers: cfg.Receivers, SizeBytes: cfg.Size, RateBits: cfg.Rate, By: cfg.By}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return Result{}, fmt.Errorf("mounting needs FUSE: %w", err)
	}
	if b.lab, err = netlab.New(ctx, netlab.Config{Dir: cfg.Dir, Rate: cfg.Rate}); err != nil {
		return Result{}, err
	}
	defer func() {
		b.Say("cleaning up")
		b.source.close()
		for _, n := range b.receivers {
			n.close()
		}
		err = errors.Join(err, b.lab.Close())
	}()
	for _, step := range []struct {
		say string
		do  func(context.Context) error
		off bool
	}{
		{fmt.Sprintf("making %d hosts", cfg.Receivers+1), b.makeHosts, false},
		{"writing the file", b.makeFile, false},
		{"one plain copy", b.copyOnce, false},
		{"other ways", b.comparePeers, !cfg.Peers},
		{"starting the nodes", b.startNodes, false},
		{"touching the memory that their caches will take", b.touch, false},
		{"all receivers begin", b.measure, false},
		{"comparing the bytes", b.verify, false},
		{"writing what was requested", b.writeTrace, cfg.Trace == ""},
	} {
		if step.off {
			continue
		}
		b.Say(step.say)
		if err := step.do(ctx); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return Result{}, err
		}
	}
	b.finish()
	return b.result, nil
}

func (b *bench) makeHosts(ctx context.Context) error {
	for i := range b.Receivers + 1 {
		name := "source"
		if i > 0 {
			name = fmt.Sprintf("r%d", i)
		}
		h, err := b.lab.AddHost(ctx, name)
		if err != nil {
			return err
		}
		b.hosts = append(b.hosts, h)
	}
	return nil
}

func (b *bench) makeFile(ctx context.Context) (err error) {
	if b.file, err = b.lab.Path("src", fileName); err != nil {
		return err
	}
	b.digest, err = writeRandom(ctx, b.file, b.Size, b.Seed)
	return err
}

func (b *bench) copyOnce(ctx context.Context) (err error) {
	if b.result.LatencySeconds, err = latency(ctx, b.hosts[0], b.hosts[1]); err != nil {
		return err
	}
	seconds, err := plain(ctx, b.file, b.Size, b.hosts[0], b.hosts[1:2], b.lab.Dir())
	if err != nil {
		return err
	}
	b.result.CopySeconds = seconds[0]
	return nil
}

func (b *bench) startNodes(ctx context.Context) (err error) {
	dir := func(h *netlab.Host) string { return filepath.Join(b.lab.Dir(), h.Name) }
	if b.source, err = startNode(ctx, b.Binary, b.hosts[0], dir(b.hosts[0]), ""); err != nil {
		return err
	}
	if err := b.source.register(ctx, b.file, fileName); err != nil {
		return err
	}
	b.receivers = make([]*node, b.Receivers)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(startAtOnce)
	for i, h := range b.hosts[1:] {
		group.Go(func() (err error) {
			b.receivers[i], err = startNode(gctx, b.Binary, h, dir(h), b.source.url)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	st, err := b.source.ctl.Stat(ctx, &nodepb.PathRequest{Path: []byte(fileName)})
	if err != nil {
		return fmt.Errorf("stat the file: %w", err)
	}
	b.result.Blocks = st.GetBlocks()
	b.result.FloorSeconds = floor(b.result.CopySeconds, b.Receivers, b.result.Blocks)
	return nil
}

// touch makes the memory ready that the receivers' caches are written to, and
// where they are read through their mounts, that of those.
func (b *bench) touch(ctx context.Context) error {
	n := int64(b.Receivers) * b.Size
	if b.By == "cat" {
		n *= 2
	}
	if err := touchMemory(ctx, n+n/4); err != nil {
		return fmt.Errorf("touch memory: %w", err)
	}
	return settle(ctx)
}

// settle waits until the nodes that have just started are quiet.
func settle(ctx context.Context) error {
	before, err := readCPU()
	if err != nil {
		return err
	}
	for range 20 {
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now, err := readCPU()
		if err != nil || now.idleSince(before) > 0.9 {
			return err
		}
		before = now
	}
	return nil // it is busy with something else, and that is seen in the end
}

func (b *bench) measure(ctx context.Context) error {
	sent, err := b.source.counters(ctx)
	if err != nil {
		return err
	}
	busy, err := b.nodesCPU()
	if err != nil {
		return err
	}
	b.began = time.Now()
	before, err := readCPU()
	if err != nil {
		return err
	}
	fetch := b.byWarm
	if b.By == "cat" {
		fetch = b.byCat
	}
	seconds, err := fetch(ctx)
	if err != nil {
		return err
	}
	after, err := readCPU()
	if err != nil {
		return err
	}
	b.result.CPUIdle = after.idleSince(before)
	busyNow, err := b.nodesCPU()
	if err != nil {
		return err
	}
	b.result.NodesCPU = busyNow - busy
	b.result.take(seconds)
	now, err := b.source.counters(ctx)
	if err != nil {
		return err
	}
	b.result.SourceCopies = float64(now["sent_bytes"]-sent["sent_bytes"]) / float64(b.Size)
	for _, n := range b.receivers {
		got, err := n.counters(ctx)
		if err != nil {
			return err
		}
		b.result.ReceivedCopies = max(b.result.ReceivedCopies, float64(got["received_bytes"])/float64(b.Size))
	}
	return nil
}

// nodesCPU returns the processor time that all nodes have taken so far.
func (b *bench) nodesCPU() (sum float64, err error) {
	for _, n := range append([]*node{b.source}, b.receivers...) {
		s, err := processSeconds(n.proc.PID())
		if err != nil {
			return 0, err
		}
		sum += s
	}
	return sum, nil
}

func (b *bench) verify(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, n := range b.receivers {
		group.Go(func() error {
			got, err := digest(ctx, n.host.View(filepath.Join(n.mount, fileName)))
			if err != nil {
				return fmt.Errorf("read the file on host %s: %w", n.host.Name, err)
			}
			if got != b.digest {
				return fmt.Errorf("the file on host %s is not what the source has", n.host.Name)
			}
			return nil
		})
	}
	return group.Wait()
}

// finish judges the figures.
func (b *bench) finish() {
	r := &b.result
	r.Valid = r.CPUIdle >= LeastIdle
	for i := range r.Peers {
		p := &r.Peers[i]
		if p.Note == "" {
			p.SlowestOver, p.MedianOver = p.SlowestSeconds/r.FloorSeconds, p.MedianSeconds/r.FloorSeconds
			p.Valid = p.CPUIdle >= LeastIdle
		}
	}
}
