package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) pinCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pin PATH...",
		Short: "Keep files from being evicted here",
		Long: `Keep what this machine's cache holds of files, and of all files under directories,
from being evicted, whatever else is read; also what of them comes later. It counts
as part of the cache's size. A pin outlives restarts and lasts until 'p2pfs unpin',
or until the file has no name any more. It is this machine's own: others do not rely
on it. A file that is published anew is another one, and not pinned.

` + exitCodesHelp,
		Example: `  p2pfs pin /mnt/models/llama
  p2pfs warm --pin /mnt/models/llama`,
		Args: argCount(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.pin(cmd.Context(), args, false) },
	}
}

func (a *app) unpinCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unpin PATH...",
		Short: "Let pinned files be evicted again",
		Long: `Let what this machine's cache holds of files, and of all files under directories, be
evicted again when room is needed. Nothing is given up at once: see drop. Files that
are not pinned stay as they are.

` + exitCodesHelp,
		Example: `  p2pfs unpin /mnt/models/llama`,
		Args:    argCount(1, -1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.pin(cmd.Context(), args, true) },
	}
}

// pinJSON is the JSON that pin and unpin print.
type pinJSON struct {
	Files      int64 `json:"files"`
	Changed    int64 `json:"changed"` // of those, that were not so before
	Bytes      int64 `json:"bytes"`
	LocalBytes int64 `json:"local_bytes"`
}

func (a *app) pin(ctx context.Context, names []string, unpin bool) error {
	return a.withAll(ctx, names, func(ctx context.Context, s *session, _, inside []string) error {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		req := &nodepb.PinRequest{Unpin: unpin}
		for _, p := range inside {
			req.Paths = append(req.Paths, []byte(p))
		}
		what := "pin"
		if unpin {
			what = "unpin"
		}
		r, err := s.ctl.Pin(ctx, req)
		if err != nil {
			var quoted []string
			for _, n := range names {
				quoted = append(quoted, quoteName(n))
			}
			return asked(s.Info, what+" "+strings.Join(quoted, " "), err)
		}
		if a.json {
			return a.printJSON(pinJSON{Files: r.GetFiles(), Changed: r.GetChanged(), Bytes: r.GetBytes(), LocalBytes: r.GetLocalBytes()})
		}
		return a.printf("%sned %s, %s, of which %s is here\n", what, plural(r.GetFiles(), "file"), formatSize(r.GetBytes()), formatSize(r.GetLocalBytes()))
	})
}
