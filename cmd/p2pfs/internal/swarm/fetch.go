package swarm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/netlab"
)

// byWarm asks every node at one moment to bring the file here, as the command
// does, and returns the seconds each took. It does not start a process each:
// on this one machine they would all start on the same processors.
func (b *bench) byWarm(ctx context.Context) ([]float64, error) {
	seconds := make([]float64, len(b.receivers))
	start := make(chan struct{})
	var began time.Time
	group, ctx := errgroup.WithContext(ctx)
	for i, n := range b.receivers {
		group.Go(func() error {
			<-start
			if err := n.warm(ctx); err != nil {
				return err
			}
			seconds[i] = time.Since(began).Seconds()
			return nil
		})
	}
	began = time.Now()
	close(start)
	return seconds, group.Wait()
}

// byCat has the file read from its begin to its end on every node by a process
// of its own; all wait for one pipe to close. It returns the seconds each took.
func (b *bench) byCat(ctx context.Context) ([]float64, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	defer r.Close()
	readers := make([]*netlab.Process, len(b.receivers))
	for i, n := range b.receivers {
		cmd := n.command("sh", "-c", `read go; exec cat "$0" >/dev/null`, filepath.Join(n.mount, fileName))
		cmd.Stdin = r
		if readers[i], err = n.host.Start(cmd); err != nil {
			return nil, err
		}
	}
	if err := settle(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := w.Close(); err != nil {
		return nil, err
	}
	seconds := make([]float64, len(readers))
	for i, p := range readers {
		select {
		case <-p.Done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err := p.Err(); err != nil {
			return nil, fmt.Errorf("read the file on host %s: %w", b.receivers[i].host.Name, err)
		}
		seconds[i] = p.Ended().Sub(began).Seconds()
	}
	return seconds, nil
}
