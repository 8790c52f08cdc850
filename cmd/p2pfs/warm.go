package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

const warmHelp = `Bring files, and all files under directories, into this machine's cache before they
are needed, and wait until they are here. A file that fails is named and does not
hold up the others; the command then fails in the end. What is larger than the
cache can hold is refused at once.

With --rank and --world-size each of several nodes takes its share of the files:
sorted by path, those whose place modulo the world size is the rank. All of them
together take every file once, as long as they name the same paths.

With --save-dir the files are copied to DIR as well, in the order in which they
come, each under the last part of the path that was named. A copy appears whole or
not at all.

` + exitCodesHelp + `

Files that are not there are code 3 if nothing else failed.`

func (a *app) warmCommand() *cobra.Command {
	var w warmed
	c := &cobra.Command{
		Use:   "warm [--pin] [--verify] [--save-dir DIR] [--rank R --world-size W] PATH...",
		Short: "Bring files here before they are needed",
		Long:  warmHelp,
		Example: `  p2pfs warm /mnt/models/llama
  p2pfs warm --pin --verify /mnt/models/llama /mnt/data/tokens.bin
  p2pfs warm --rank 3 --world-size 16 --save-dir /local/llama /mnt/models/llama`,
		Args: argCount(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.warm(cmd.Context(), args, w, cmd.Flags().Changed("save-dir"))
		},
	}
	f := c.Flags()
	f.Int32Var(&w.concurrency, "concurrency", 0, "fetch `N` files side by side, at most 256 (default 8)")
	f.BoolVar(&w.verify, "verify", false, "read every block back from the disk and compare it with its checksum")
	f.BoolVar(&w.pin, "pin", false, "keep them from being evicted until 'p2pfs unpin'")
	f.Int32Var(&w.rank, "rank", 0, "which share of the files to take, from 0 to W-1: `R`")
	f.Int32Var(&w.world, "world-size", 0, "how many shares the files are cut into: `W`")
	f.StringVar(&w.saveDir, "save-dir", "", "copy the files to `DIR`, too")
	f.SortFlags = false
	return c
}

// warmed is what warm is told.
type warmed struct {
	concurrency, rank, world int32
	verify, pin              bool
	saveDir                  string
}

func (w warmed) check(saves bool) error {
	switch {
	case w.concurrency < 0 || w.concurrency > 256:
		return usagef("--concurrency %d: want 1 to 256", w.concurrency)
	case w.world < 0 || w.world == 0 && w.rank != 0:
		return usagef("--rank %d needs a --world-size", w.rank)
	case w.world > 0 && (w.rank < 0 || w.rank >= w.world):
		return usagef("--rank %d: want 0 to %d, for --world-size %d", w.rank, w.world-1, w.world)
	case saves && w.saveDir == "":
		return usagef("--save-dir: empty directory")
	}
	return nil
}

// warmJSON is the JSON that warm prints.
type warmJSON struct {
	Files    int64        `json:"files"` // that are here now
	Bytes    int64        `json:"bytes"`
	Failed   int64        `json:"failed"`
	Failures []failedJSON `json:"failures"`
	Pinned   bool         `json:"pinned"`
	Verified bool         `json:"verified"`
	SaveDir  string       `json:"save_dir,omitempty"`
	Seconds  float64      `json:"seconds"`

	missing int64 // of the failures: paths that are not there
}

type failedJSON struct {
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	Error      string `json:"error"`
}

func (a *app) warm(ctx context.Context, names []string, w warmed, saves bool) error {
	if err := w.check(saves); err != nil {
		return err
	}
	began := time.Now()
	return a.withAll(ctx, names, func(ctx context.Context, s *session, paths, inside []string) error {
		out := &warmJSON{Failures: []failedJSON{}, Pinned: w.pin, Verified: w.verify, SaveDir: w.saveDir}
		var save *saver
		if saves {
			var err error
			if save, err = newSaver(ctx, w.saveDir, paths); err != nil {
				return err
			}
			defer save.wait()
		}
		if err := a.warmAll(ctx, s, w, inside, out, save); err != nil {
			return err
		}
		if save != nil {
			for _, bad := range save.wait() {
				out.fail(bad.path, bad.err.Error(), false)
				out.Files--
			}
		}
		out.Seconds = time.Since(began).Seconds()
		return a.endWarm(ctx, out)
	})
}

// warmAll asks the node and follows what it tells.
func (a *app) warmAll(ctx context.Context, s *session, w warmed, inside []string, out *warmJSON, save *saver) error {
	req := &nodepb.WarmRequest{
		Concurrency: w.concurrency, Verify: w.verify, Pin: w.pin, Rank: w.rank, WorldSize: w.world,
	}
	for _, p := range inside {
		req.Paths = append(req.Paths, []byte(p))
	}
	bar := a.newProgress("fetching")
	defer bar.end()
	stream, err := s.ctl.Warm(ctx, req)
	if err != nil {
		return asked(s.Info, "warm", err)
	}
	done := false
	for {
		r, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && done:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("warm: the node %s ended the call before it was done", s.Info)
		case err != nil:
			return asked(s.Info, "warm", err)
		}
		done = r.GetDone()
		bar.bytes(r.GetBytes(), r.GetBytesTotal())
		f := r.GetFile()
		if f == nil {
			continue
		}
		at := path.Join(s.Mountpoint, string(f.GetPath()))
		if f.GetError() != "" {
			out.fail(at, f.GetError(), f.GetNotFound())
			continue
		}
		out.Files++
		out.Bytes += f.GetSize()
		if save != nil {
			save.add(at, int(f.GetFrom()), string(f.GetInside()))
		}
	}
}

func (j *warmJSON) fail(at, why string, missing bool) {
	f := failedJSON{Error: why}
	f.Path, f.PathBase64 = jsonText(at)
	j.Failures = append(j.Failures, f)
	j.Failed++
	if missing {
		j.missing++
	}
}

// endWarm prints what became of it, and returns the failure there was.
func (a *app) endWarm(ctx context.Context, out *warmJSON) error {
	var err error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case a.json:
		err = a.printJSON(out)
	default:
		for _, f := range out.Failures {
			fmt.Fprintf(a.err, "p2pfs: %s: %s\n", quoteName(f.Path), f.Error)
		}
		what := "here"
		if out.Verified {
			what += " and verified"
		}
		if out.Pinned {
			what += ", pinned"
		}
		if out.SaveDir != "" {
			what += ", copied to " + a.shown(out.SaveDir)
		}
		err = a.printf("%s %s: %s, in %.1f s\n", plural(out.Files, "file"), what, formatSize(out.Bytes), out.Seconds)
	}
	switch {
	case err != nil || out.Failed == 0:
		return err
	case out.missing == out.Failed:
		return remoteError{codes.NotFound, "warm", plural(out.Failed, "path") + " not in the cluster"}
	}
	return fmt.Errorf("warm: %s failed", plural(out.Failed, "file"))
}
