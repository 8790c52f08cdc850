package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cmd/p2pfs/internal/netlab"
)

// plain copies the file from one host to others by HTTP, over one connection
// each, all at once: sent by sendfile, written to a file. It returns the
// seconds each took, sorted.
func plain(ctx context.Context, file string, size int64, from *netlab.Host, to []*netlab.Host, dir string) ([]float64, error) {
	lis, err := from.Listen(ctx)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // the receiver sees it
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(lis) // ends by Close
	}()
	defer func() {
		srv.Close()
		<-served
	}()
	seconds := make([]float64, len(to))
	group, gctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i, h := range to {
		group.Go(func() error {
			out := filepath.Join(dir, "copy."+h.Name)
			defer os.Remove(out)
			if err := receive(gctx, h, "http://"+lis.Addr().String(), out, size); err != nil {
				return fmt.Errorf("copy to host %s: %w", h.Name, err)
			}
			seconds[i] = time.Since(began).Seconds()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(seconds)
	return seconds, nil
}

// latency returns the seconds that anything takes from one host to another: half of
// what connecting takes, the median of a few times.
func latency(ctx context.Context, from, to *netlab.Host) (float64, error) {
	lis, err := from.Listen(ctx)
	if err != nil {
		return 0, err
	}
	defer lis.Close()
	var took []float64
	for range 9 {
		began := time.Now()
		c, err := to.Dial(ctx, lis.Addr().String())
		if err != nil {
			return 0, fmt.Errorf("connect from host %s to host %s: %w", to.Name, from.Name, err)
		}
		took = append(took, time.Since(began).Seconds()/2)
		c.Close()
	}
	slices.Sort(took)
	return median(took), nil
}

// receive writes what an address serves to a file.
func receive(ctx context.Context, h *netlab.Host, url, out string, size int64) error {
	t := &http.Transport{
		DialContext:        func(ctx context.Context, _, addr string) (net.Conn, error) { return h.Dial(ctx, addr) },
		DisableCompression: true,
	}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, resp.Body, make([]byte, 256<<10))
	if err == nil && n != size {
		err = fmt.Errorf("%d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
	}
	return errors.Join(err, f.Close())
}
