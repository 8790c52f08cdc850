package swarm

import (
	"context"
	"os/exec"
)

// comparePeers measures other ways to bring the file to all receivers. What is
// not here, or fails, is noted: that is no failure of the run.
func (b *bench) comparePeers(ctx context.Context) error {
	err := b.comparePeer(ctx, Peer{Name: "one HTTP source", SourceCopies: float64(b.Receivers)}, func(ctx context.Context) ([]float64, error) {
		return plain(ctx, b.file, b.Size, b.hosts[0], b.hosts[1:], b.lab.Dir())
	})
	if err != nil {
		return err
	}
	p2pstore := Peer{Name: "p2pstore"}
	if missing := missingOfP2PStore(ctx); missing != "" {
		p2pstore.Note = "not measured; missing: " + missing
	}
	if err := b.comparePeer(ctx, p2pstore, b.viaP2PStore); err != nil {
		return err
	}
	_, err = exec.LookPath("aria2c")
	for _, p := range []struct {
		name string
		here bool
	}{{"mooncake", importable(ctx, "mooncake")}, {"aria2", err == nil}} {
		note := "not installed"
		if p.here {
			note = "installed; not measured"
		}
		b.result.Peers = append(b.result.Peers, Peer{Name: p.name, Note: note})
	}
	return nil
}

// comparePeer measures one way, unless p's note says why it cannot be measured
// here.
func (b *bench) comparePeer(ctx context.Context, p Peer, bring func(context.Context) ([]float64, error)) error {
	defer func() { b.result.Peers = append(b.result.Peers, p) }()
	if p.Note != "" {
		return nil
	}
	b.Say("other ways: " + p.Name)
	before, err := readCPU()
	if err != nil {
		return err
	}
	seconds, failed := bring(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	after, err := readCPU()
	if err != nil {
		return err
	}
	p.CPUIdle = after.idleSince(before)
	if failed != nil {
		p.Note = "failed: " + failed.Error()
		return nil
	}
	p.SlowestSeconds, p.MedianSeconds = slowest(seconds), median(seconds)
	return nil
}

// importable reports whether Python finds a module.
func importable(ctx context.Context, module string) bool {
	return exec.CommandContext(ctx, "python3", "-c", "import "+module).Run() == nil
}
