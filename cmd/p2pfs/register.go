package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/running"
)

func (a *app) registerCommand() *cobra.Command {
	var opts registerOptions
	cmd := &cobra.Command{
		Use:   "register [--replace] [-T] [--key-ttl TIME] SRC... DEST",
		Short: "Show files of this machine to the cluster, from where they lie",
		Long: `Show files or directory trees of this machine to the cluster under DEST, a path
under the mount. Nothing is copied: this node serves them from where they lie,
so they must stay there unchanged. A file that changes is no longer served to
other machines; on this one the registered file is what is read, edits included,
but one that is gone or has another length is read from machines that have it.

DEST is read as 'cp -r' reads it: if it is a directory, or ends in a slash, or
several SRC are given, each SRC goes into it under its own name; else DEST is
the new name. A tree whose own name DEST has already is that tree; with -T, DEST
is the name of SRC whatever it is called: so a tree is registered once more under
a name that is not its own. Directories of DEST that are missing
are made. Symlinks are kept as links; devices, pipes and sockets are refused.

A name that is taken is joined if it holds equal bytes: the files are read and
compared, and this node then keeps and serves what the name stands for, as the
one that made it does. In a tree, files that are missing are added. Different
bytes are refused; with --replace the name stands for the new ones from then on,
and who has the old ones open keeps them.

With --key-ttl the names are there for so long and then no more, on every node,
and nothing is served any more; a directory that is made goes then if it is empty.
Registering again starts the time anew.

A new tree appears whole or not at all. The files are opened with the rights of
the user who runs the command.

` + exitCodesHelp,
		Example: `  p2pfs register /data/llama /mnt/models/llama
  p2pfs register a.gguf b.gguf /mnt/models/gguf/
  p2pfs register -T /backup/llama-2024 /mnt/models/llama`,
		Args: argCount(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.isTree && len(args) > 2 {
				return usagef("register: -T is for a single SRC")
			}
			return a.register(cmd.Context(), opts, args[:len(args)-1], args[len(args)-1])
		},
	}
	cmd.Flags().BoolVar(&opts.replace, "replace", false, "make names that hold other bytes stand for the new ones")
	cmd.Flags().Var(&opts.ttl, "key-ttl", "take the names away again after this `TIME`, as in 30m, 24h or 7d; 0 is never (default: as the node was mounted)")
	cmd.Flags().BoolVarP(&opts.isTree, "no-target-directory", "T", false, "DEST is the name of SRC itself, though it is a directory")
	return cmd
}

type registerOptions struct {
	replace bool
	isTree  bool
	ttl     ttlFlag
}

// registered is the JSON that register prints.
type registered struct {
	Destination       string  `json:"destination"`
	DestinationBase64 string  `json:"destination_base64,omitempty"`
	Files             int64   `json:"files"`
	Joined            int64   `json:"joined"` // of those, files that were in the cluster before
	Bytes             int64   `json:"bytes"`
	Seconds           float64 `json:"seconds"`
}

func (a *app) register(ctx context.Context, opts registerOptions, sources []string, dest string) error {
	req := &nodepb.RegisterRequest{
		DestIsDir: !opts.isTree && (len(sources) > 1 || namesDir(dest)), DestIsTree: opts.isTree, Replace: opts.replace,
	}
	if opts.ttl.set {
		req.KeyTtlNs = proto.Int64(int64(opts.ttl.d))
	}
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
		req.DestIsDir = req.DestIsDir || s.Inside == "" && !opts.isTree
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
		at := s.Path
		if p := last.GetPath(); len(p) > 0 {
			at = filepath.Join(strings.TrimSuffix(at, s.Inside), string(p))
		}
		if a.json {
			r := registered{Files: last.GetFiles(), Joined: last.GetJoined(), Bytes: last.GetBytes(), Seconds: took.Seconds()}
			r.Destination, r.DestinationBase64 = jsonText(at)
			return a.printJSON(r)
		}
		joined := ""
		if n := last.GetJoined(); n > 0 {
			joined = fmt.Sprintf(" (%d of them joined)", n)
		}
		return a.printf("registered %s%s, %s, at %s in %.1f s\n",
			plural(last.GetFiles(), "file"), joined, formatSize(last.GetBytes()), a.shown(at), took.Seconds())
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
