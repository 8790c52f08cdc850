package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) unregisterCommand() *cobra.Command {
	var force, keepName bool
	cmd := &cobra.Command{
		Use:   "unregister [--keep-name] [--force] PATH",
		Short: "Take a name out of the cluster",
		Long: `Take a file, or a directory with all that is under it, out of the cluster. PATH is
a path under the mount. It disappears on every machine. The registered files
themselves are not touched. Whoever has one open can read it to its end: it is
served a minute longer, or as long as that takes. Run it on the machine that
registered them; --force takes away names that another machine registered, one
that is gone for good, say.

With --keep-name the names stay, and only this machine's part in serving them
ends: its registered files are wanted for something else. Another machine that
has all of a file becomes its keeper first; where there is none, that file is
refused and stays registered, unless --force gives up the last copy.

` + exitCodesHelp,
		Example: `  p2pfs unregister /mnt/models/llama
  p2pfs unregister --keep-name /mnt/models/llama`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.unregister(cmd.Context(), args[0], force, keepName)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "take the names away although another machine registered them; with --keep-name, give up the last copy")
	cmd.Flags().BoolVar(&keepName, "keep-name", false, "leave the names, give up this machine's registered copies")
	return cmd
}

// unregistered is the JSON that unregister prints.
type unregistered struct {
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	Files      int64  `json:"files"`
}

func (a *app) unregister(ctx context.Context, name string, force, keepName bool) error {
	return a.once(ctx, name, func(ctx context.Context, s *session) error {
		if s.Inside == "" {
			return usagef("unregister: %s is the mountpoint; name a file or a directory under it", name)
		}
		r, err := s.ctl.Unregister(ctx, &nodepb.PathRequest{Path: []byte(s.Inside), Recursive: true, Force: force, KeepName: keepName})
		if err != nil {
			return asked(s.Info, "unregister "+quoteName(name), err)
		}
		if a.json {
			out := unregistered{Files: r.GetFiles()}
			out.Path, out.PathBase64 = jsonText(s.Path)
			return a.printJSON(out)
		}
		if keepName {
			return a.printf("no longer registered here, %s keeps its name: %s\n", a.shown(s.Path), plural(r.GetFiles(), "file"))
		}
		return a.printf("unregistered %s: %s\n", a.shown(s.Path), plural(r.GetFiles(), "file"))
	})
}
