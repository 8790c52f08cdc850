package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) gcCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "gc [--dry-run]",
		Short: "Remove kept copies that no name stands for",
		Long: `Look through what this node keeps, and remove what no name in the cluster stands
for any more: copies of files that were written here, and the service of files
that were registered here. The registered files themselves are not touched. What
somebody still has open, on any machine, stays until it is closed. The node does
this by itself every few minutes; the command does not wait for that. What has no
name since the metadata store was lost, and was not removed as far as this node
knows, is held: it stays.

` + exitCodesHelp,
		Example: `  p2pfs gc --dry-run`,
		Args:    argCount(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.gc(cmd.Context(), dryRun) },
	}
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "say what would be removed, and remove nothing")
	return cmd
}

// collected is the JSON that gc prints.
type collected struct {
	DryRun     bool   `json:"dry_run"`
	Checked    int64  `json:"checked"`
	Removed    int64  `json:"removed"`
	FreedBytes int64  `json:"freed_bytes"`
	Forgotten  int64  `json:"forgotten"`
	Waiting    int64  `json:"waiting"`
	Held       int64  `json:"held,omitempty"`
	Note       string `json:"note,omitempty"`
}

func (a *app) gc(ctx context.Context, dryRun bool) error {
	return a.with(ctx, "", func(ctx context.Context, s *session) error {
		r, err := s.ctl.Collect(ctx, &nodepb.CollectRequest{DryRun: dryRun})
		if err != nil {
			return asked(s.Info, "collect", err)
		}
		if a.json {
			return a.printJSON(collected{
				DryRun: dryRun, Checked: r.GetChecked(), Removed: r.GetRemoved(), FreedBytes: r.GetFreedBytes(),
				Forgotten: r.GetForgotten(), Waiting: r.GetWaiting(), Held: r.GetHeld(), Note: r.GetNote(),
			})
		}
		removed, forgotten := "removed", "no longer served"
		if dryRun {
			removed, forgotten = "would be removed", "would no longer be served"
		}
		err = a.printf("%s kept here: %d %s (%s), %d registered %s, %d without a name but in use\n",
			plural(r.GetChecked(), "object"), r.GetRemoved(), removed, formatSize(r.GetFreedBytes()), r.GetForgotten(), forgotten, r.GetWaiting())
		if err == nil && r.GetHeld() > 0 {
			err = a.printf("%s without a name held after a restoration\n", plural(r.GetHeld(), "object"))
		}
		if err == nil && r.GetNote() != "" {
			err = a.printf("nothing was looked at: %s\n", r.GetNote())
		}
		return err
	})
}
