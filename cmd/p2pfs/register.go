package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/running"
)

func (a *app) registerCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "register SRC... DEST",
		Short: "Show files of this machine to the cluster, from where they lie",
		Long: `Show files or directory trees of this machine to the cluster under DEST, a path
under the mount. Nothing is copied: this node serves them from where they lie,
so they must stay there unchanged. A file that changes is no longer served to
other machines; on this one the registered file is what is read, edits included.

DEST is read as 'cp -r' reads it: if it is a directory, or ends in a slash, or
several SRC are given, each SRC goes into it under its own name; else DEST is
the new name. Directories of DEST that are missing are made. A name that is
taken is refused, unless it stands for the very same file, registered from here
before. Run twice with a new name as DEST, the second run goes inside the first.
Symlinks are kept as links; devices, pipes and sockets are refused.

A tree appears whole or not at all. The files are opened with the rights of the
user who runs the command.

` + exitCodesHelp,
		Example: `  p2pfs register /data/llama /mnt/models/llama
  p2pfs register a.gguf b.gguf /mnt/models/gguf/`,
		Args: argCount(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.register(cmd.Context(), args[:len(args)-1], args[len(args)-1])
		},
	}
}

// registered is the JSON that register prints.
type registered struct {
	Destination       string  `json:"destination"`
	DestinationBase64 string  `json:"destination_base64,omitempty"`
	Files             int64   `json:"files"`
	Bytes             int64   `json:"bytes"`
	Seconds           float64 `json:"seconds"`
}

func (a *app) register(ctx context.Context, sources []string, dest string) error {
	req := &nodepb.RegisterRequest{DestIsDir: len(sources) > 1 || namesDir(dest)}
	for _, src := range sources {
		abs, err := absolute(src)
		if err != nil {
			return err
		}
		req.Sources = append(req.Sources, []byte(abs))
	}
	began := time.Now()
	return a.with(ctx, dest, func(ctx context.Context, s *session) error {
		req.Dest = []byte(s.Inside)
		req.DestIsDir = req.DestIsDir || s.Inside == ""
		what := "register to " + quoteName(dest)
		bar := a.newProgress("registering")
		defer bar.end()
		stream, err := s.ctl.Register(ctx, req)
		if err != nil {
			return asked(s.Info, what, err)
		}
		last, err := follow(s.Info, what, stream, func(p *nodepb.Progress) {
			bar.text(fmt.Sprintf("%s, %s", plural(p.GetFiles(), "file"), formatSize(p.GetBytes())))
		})
		bar.end()
		if err != nil {
			return err
		}
		took := time.Since(began)
		if a.json {
			r := registered{Files: last.GetFiles(), Bytes: last.GetBytes(), Seconds: took.Seconds()}
			r.Destination, r.DestinationBase64 = jsonText(s.Path)
			return a.printJSON(r)
		}
		return a.printf("registered %s, %s, at %s in %.1f s\n",
			plural(last.GetFiles(), "file"), formatSize(last.GetBytes()), a.shown(s.Path), took.Seconds())
	})
}

// namesDir reports whether a destination can only be a directory.
func namesDir(dest string) bool {
	base := path.Base(dest)
	return strings.HasSuffix(dest, "/") || base == "." || base == ".."
}

// absolute makes a path of this machine absolute and changes nothing else: a
// trailing slash and ".." after a symlink mean something to the node, which
// opens the file.
func absolute(name string) (string, error) {
	if path.IsAbs(name) {
		return name, nil
	}
	wd, err := running.WorkingDir()
	if err != nil {
		return "", fmt.Errorf("source %q: %w", name, err)
	}
	return strings.TrimSuffix(wd, "/") + "/" + name, nil
}

// follow reads the progress of a long call to its end and returns the last
// message, the one that says done.
func follow(i running.Info, what string, stream grpc.ServerStreamingClient[nodepb.Progress], on func(*nodepb.Progress)) (*nodepb.Progress, error) {
	var last *nodepb.Progress
	for {
		p, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && last.GetDone():
			return last, nil
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%s: the node %s ended the call before it was done", what, i)
		case err != nil:
			return nil, asked(i, what, err)
		}
		last = p
		on(p)
	}
}
