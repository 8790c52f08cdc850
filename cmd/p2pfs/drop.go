package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) dropCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "drop [--force] PATH",
		Short: "Give up this machine's copy",
		Long: `Give up what this machine's cache holds of a file, or of every file under a
directory. The name stays and reading fetches it again; whoever has it open goes
on reading. Files registered on this machine stay registered: see unregister.

The copy of a file that was written on this machine is kept, so that it is not
lost. Another machine that has all of it becomes its keeper first; where there is
none, the copy is not given up, unless --force gives up the last one. A pinned
file is not given up either, unless --force unpins it.

` + exitCodesHelp,
		Example: `  p2pfs drop /mnt/models/llama`,
		Args:    argCount(1, 1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.drop(cmd.Context(), args[0], force) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "give up a kept copy although nobody else has all of it, and what is pinned")
	return cmd
}

// dropped is the JSON that drop prints.
type dropped struct {
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	Files      int64  `json:"files"`
	FreedBytes int64  `json:"freed_bytes"`
}

func (a *app) drop(ctx context.Context, name string, force bool) error {
	return a.once(ctx, name, func(ctx context.Context, s *session) error {
		r, err := s.ctl.Drop(ctx, &nodepb.PathRequest{Path: []byte(s.Inside), Recursive: true, Force: force})
		if err != nil {
			return asked(s.Info, "drop "+quoteName(name), err)
		}
		if a.json {
			out := dropped{Files: r.GetFiles(), FreedBytes: r.GetFreedBytes()}
			out.Path, out.PathBase64 = jsonText(s.Path)
			return a.printJSON(out)
		}
		return a.printf("dropped %s, %s freed\n", plural(r.GetFiles(), "file"), formatSize(r.GetFreedBytes()))
	})
}
