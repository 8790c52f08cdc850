package swarm

import (
	"context"
	"os/exec"
)

// comparePeers measures other ways to bring the file to all receivers.
func (b *bench) comparePeers(ctx context.Context) error {
	b.Say("other ways: one HTTP source for all")
	before, err := readCPU()
	if err != nil {
		return err
	}
	seconds, err := plain(ctx, b.file, b.Size, b.hosts[0], b.hosts[1:], b.lab.Dir())
	if err != nil {
		return err
	}
	after, err := readCPU()
	if err != nil {
		return err
	}
	b.result.Peers = append(b.result.Peers, Peer{
		Name: "one HTTP source", SlowestSeconds: slowest(seconds), MedianSeconds: median(seconds),
		SourceCopies: float64(b.Receivers), CPUIdle: after.idleSince(before),
	})
	for _, p := range []struct {
		name string
		has  func() bool
	}{
		{"p2pstore", func() bool { return importable(ctx, "p2pstore") }},
		{"mooncake", func() bool { return importable(ctx, "mooncake") }},
		{"aria2", func() bool { _, err := exec.LookPath("aria2c"); return err == nil }},
	} {
		note := "not installed"
		if p.has() {
			note = "installed; not measured"
		}
		b.result.Peers = append(b.result.Peers, Peer{Name: p.name, Note: note})
	}
	return nil
}

// importable reports whether Python finds a module.
func importable(ctx context.Context, module string) bool {
	return exec.CommandContext(ctx, "python3", "-c", "import "+module).Run() == nil
}
