package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) dropCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "drop PATH",
		Short: "Give up this machine's cached copy",
		Long: `Give up what this machine's cache holds of a file, or of every file under a
directory. The name stays and reading fetches it again. Files registered on this
machine stay registered; files that are open are left alone.

` + exitCodesHelp,
		Example: `  p2pfs drop /mnt/models/llama`,
		Args:    argCount(1, 1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.drop(cmd.Context(), args[0]) },
	}
}

// dropped is the JSON that drop prints.
type dropped struct {
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	Files      int64  `json:"files"`
	FreedBytes int64  `json:"freed_bytes"`
}

func (a *app) drop(ctx context.Context, name string) error {
	return a.once(ctx, name, func(ctx context.Context, s *session) error {
		r, err := s.ctl.Drop(ctx, &nodepb.PathRequest{Path: []byte(s.Inside), Recursive: true})
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
