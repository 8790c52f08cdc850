package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/running"
)

const recoverHelp = `Show the files that were written on this machine and are not published: closed
while the store was out of reach, or overtaken by another node, or left by a crash
or by a writer that was killed.
Their bytes stay on this machine's disk until they are published or discarded.

With PATH or --all, publish them: under their own names, or with --to under
another one. A name that a newer file has got since is left to it, unless
--replace. What was never closed may not be whole: it is published with
--unclosed only. --out copies the bytes to a new file outside the mount instead,
and --discard throws them away: with --all also what was never closed.

PATH is where the file was written; where several were written there, the ID that
the list shows says which.

States:
  closed      closed, and its publish failed: the reason is shown
  open        the node ended, or a signal killed the writer, while the file was
              being written
  unknown     the node ended while the file was being published, and the store
              cannot be asked yet whether it was
  unreadable  nobody knows its name any more: publish it with --to

` + exitCodesHelp

func (a *app) recoverCommand() *cobra.Command {
	var o recoverOptions
	c := &cobra.Command{
		Use:   "recover [--all | PATH...]",
		Short: "Show, publish or discard what was written here and not published",
		Long:  recoverHelp,
		Example: `  p2pfs recover
  p2pfs recover /mnt/models/ckpt/step-100.safetensors
  p2pfs recover --all --unclosed
  p2pfs recover --out /tmp/step-100 /mnt/models/ckpt/step-100.safetensors
  p2pfs recover --discard /mnt/models/ckpt/step-100.safetensors`,
		Args: argCount(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			return a.recover(cmd.Context(), o, args)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.all, "all", false, "every file that was closed; with --discard also those that were not")
	f.BoolVar(&o.unclosed, "unclosed", false, "also files that were not closed")
	f.BoolVar(&o.replace, "replace", false, "publish over a newer file that has the name")
	f.StringVar(&o.to, "to", "", "publish under `NEWPATH`")
	f.StringVar(&o.out, "out", "", "copy the bytes to a new `FILE` of this machine")
	f.BoolVar(&o.discard, "discard", false, "throw the bytes away")
	f.SortFlags = false
	return c
}

type recoverOptions struct {
	all, unclosed, replace, discard bool
	to, out                         string
}

func (o recoverOptions) check(args []string) error {
	switch {
	case o.all && len(args) > 0:
		return usagef("recover: --all or PATH, not both")
	case o.all && (o.to != "" || o.out != ""):
		return usagef("recover: --to and --out take one PATH")
	case len(args) != 1 && (o.to != "" || o.out != ""):
		return usagef("recover: --to and --out take one PATH")
	case o.discard && (o.to != "" || o.out != "" || o.replace), o.out != "" && (o.to != "" || o.replace):
		return usagef("recover: --discard, --out and publishing (--to, --replace) exclude each other")
	case !o.all && len(args) == 0 && (o.unclosed || o.replace || o.discard):
		return usagef("recover: which files? give PATH, or --all")
	}
	return nil
}

// request returns what the node is asked for.
func (a *app) recoverRequest(o recoverOptions, args []string) (*nodepb.RecoverRequest, error) {
	req := &nodepb.RecoverRequest{All: o.all, Unclosed: o.unclosed, Replace: o.replace, Action: nodepb.RecoverRequest_PUBLISH}
	switch {
	case o.discard:
		req.Action = nodepb.RecoverRequest_DISCARD
	case o.out != "":
		req.Action = nodepb.RecoverRequest_COPY
		out, err := absolute(o.out)
		if err != nil {
			return nil, err
		}
		req.Out = []byte(out)
	case !o.all && len(args) == 0:
		req.Action = nodepb.RecoverRequest_LIST
	}
	for _, arg := range args {
		name, err := a.insideMount(arg)
		if err != nil {
			return nil, err
		}
		req.Names = append(req.Names, []byte(name))
	}
	if o.to != "" {
		to, err := a.insideMount(o.to)
		if err != nil {
			return nil, err
		}
		req.To = []byte(to)
	}
	return req, nil
}

// isFileID reports whether an argument is what the list shows beside a path.
func isFileID(arg string) bool {
	ok, err := regexp.MatchString("^[0-9a-f]{16}$", arg)
	return ok && err == nil
}

// insideMount returns the path of a name below its mountpoint; an id is left
// as it is.
func (a *app) insideMount(arg string) (string, error) {
	if isFileID(arg) {
		return arg, nil
	}
	found, err := running.Find(running.Query{Path: arg, Node: a.node, Env: a.env(running.EnvNode)})
	if err != nil {
		return "", err
	}
	return found.Inside, nil
}

// unpublishedJSON is one file of the JSON that recover prints.
type unpublishedJSON struct {
	ID         string `json:"id"`
	raw        string // the path, bytes as they are
	Path       string `json:"path"` // inside the mount
	PathBase64 string `json:"path_base64,omitempty"`
	Size       int64  `json:"size"`
	When       string `json:"when,omitempty"` // RFC 3339
	State      string `json:"state"`
	Reason     string `json:"reason"`
	Error      string `json:"error,omitempty"`
}

func (a *app) recover(ctx context.Context, o recoverOptions, args []string) error {
	req, err := a.recoverRequest(o, args)
	if err != nil {
		return err
	}
	where := ""
	for _, arg := range args {
		if !isFileID(arg) {
			where = arg
			break
		}
	}
	return a.with(ctx, where, func(ctx context.Context, s *session) error {
		files := []unpublishedJSON{}
		stream, err := s.ctl.Recover(ctx, req)
		for err == nil {
			var r *nodepb.RecoverReply
			if r, err = stream.Recv(); err == nil {
				files = append(files, newUnpublishedJSON(r))
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return errors.Join(a.printRecovered(req, files), asked(s.Info, "recover", err))
	})
}

func newUnpublishedJSON(r *nodepb.RecoverReply) unpublishedJSON {
	j := unpublishedJSON{ID: r.GetId(), Size: r.GetSize(), State: r.GetState(), Reason: r.GetReason(), Error: r.GetError()}
	j.raw = "/" + string(r.GetPath())
	j.Path, j.PathBase64 = jsonText(r.GetPath())
	if ns := r.GetWhenUnixNs(); ns != 0 {
		j.When = time.Unix(0, ns).UTC().Format(time.RFC3339)
	}
	return j
}

func (a *app) printRecovered(req *nodepb.RecoverRequest, files []unpublishedJSON) error {
	listing := req.Action == nodepb.RecoverRequest_LIST
	switch {
	case a.json:
		return a.printJSON(map[string]any{"files": files})
	case listing && len(files) == 0:
		return a.printf("nothing waits to be recovered\n")
	case listing:
		return a.printUnpublished(files)
	}
	done := map[nodepb.RecoverRequest_Action]string{
		nodepb.RecoverRequest_PUBLISH: "published", nodepb.RecoverRequest_DISCARD: "discarded", nodepb.RecoverRequest_COPY: "copied",
	}[req.Action]
	switch {
	case len(files) == 0 && req.Action == nodepb.RecoverRequest_PUBLISH && !req.Unclosed:
		return a.printf("nothing published: no closed file waits; 'p2pfs recover' lists those that were not closed\n")
	case len(files) == 0:
		return a.printf("nothing %s: nothing waits to be recovered\n", done)
	}
	for _, f := range files {
		what := done + " " + a.shown(f.raw)
		if f.Error != "" {
			what = fmt.Sprintf("not %s %s (id %s): %s", done, a.shown(f.raw), f.ID, f.Error)
		}
		if err := a.printf("%s\n", what); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printUnpublished(files []unpublishedJSON) error {
	var t table
	t.row("ID", "PATH", "SIZE", "WHEN", "STATE", "WHY")
	for _, f := range files {
		t.row(f.ID, a.shown(f.raw), formatSize(f.Size), orDash(f.When), f.State, f.Reason)
	}
	return t.print(a.out)
}
