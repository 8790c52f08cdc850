package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) lsCommand() *cobra.Command {
	var long, recursive bool
	c := &cobra.Command{
		Use:   "ls [-l] [-r] [PATH]",
		Short: "List names, and what of them is here",
		Long: `List the names under PATH, or PATH itself if it is a file; without PATH, those at
the mountpoint. With -l each line says, last before the name, what of a file is
on this machine:
  in-place  registered here: served from where it lies
  changed   registered here and edited since: served to nobody else
  gone      registered here and removed since: read from others
  complete  all of it
  partial   some of it
  remote    none of it
In JSON, changed and gone are the source of what is in-place.

` + exitCodesHelp,
		Example: `  p2pfs ls -l -r /mnt/models/llama`,
		Args:    argCount(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ls(cmd.Context(), append(args, "")[0], long, recursive)
		},
	}
	c.Flags().BoolVarP(&long, "long", "l", false, "one line of details for each name")
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "what is below directories, too")
	return c
}

func (a *app) ls(ctx context.Context, name string, long, recursive bool) error {
	if name == "" && a.node == "" {
		// In a directory of a mount, that mount is meant, as with ls.
		if wd, ok := mountedHere(); ok {
			name = wd
		}
	}
	return a.with(ctx, name, func(ctx context.Context, s *session) error {
		what := "list " + quoteName(name)
		if name == "" {
			what = "list " + quoteName(s.Mountpoint)
		}
		items, err := list(ctx, s, what, &nodepb.ListRequest{Path: []byte(s.Inside), Recursive: recursive})
		if err != nil {
			return err
		}
		out := bufio.NewWriterSize(a.out, 64<<10)
		switch {
		case a.json:
			shown := s.Path
			if shown == "" {
				shown = s.Mountpoint
			}
			err = listJSON(out, shown, items)
		case long:
			err = a.listLong(out, items)
		default:
			for _, it := range items {
				fmt.Fprintln(out, a.shown(string(it.GetPath())))
			}
		}
		return errors.Join(err, out.Flush())
	})
}

// list returns the names, in the order of their bytes.
func list(ctx context.Context, s *session, what string, req *nodepb.ListRequest) ([]*nodepb.Item, error) {
	stream, err := s.ctl.List(ctx, req)
	if err != nil {
		return nil, asked(s.Info, what, err)
	}
	var items []*nodepb.Item
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, asked(s.Info, what, err)
		}
		items = append(items, r.GetItems()...)
	}
	slices.SortFunc(items, func(x, y *nodepb.Item) int { return bytes.Compare(x.GetPath(), y.GetPath()) })
	return items, nil
}

// listLong prints a line for each item, with columns as wide as they need be.
func (a *app) listLong(out io.Writer, items []*nodepb.Item) error {
	owners, groups := map[uint32]string{}, map[uint32]string{}
	var ow, gw, sw int
	for _, it := range items {
		if _, ok := owners[it.GetUid()]; !ok {
			owners[it.GetUid()] = userName(it.GetUid())
		}
		if _, ok := groups[it.GetGid()]; !ok {
			groups[it.GetGid()] = groupName(it.GetGid())
		}
		ow, gw = max(ow, len(owners[it.GetUid()])), max(gw, len(groups[it.GetGid()]))
		sw = max(sw, len(strconv.FormatInt(it.GetSize(), 10)))
	}
	for _, it := range items {
		name := a.shown(string(it.GetPath()))
		if it.GetKind() == "symlink" {
			name += " -> " + a.shown(string(it.GetTarget()))
		}
		state := it.GetState()
		if src := it.GetSource(); src != "" && src != "ok" {
			state = src
		}
		if state == "" {
			state = "-"
		}
		if _, err := fmt.Fprintf(out, "%s %-*s %-*s %*d %s %-8s %s\n", modeString(it),
			ow, owners[it.GetUid()], gw, groups[it.GetGid()], sw, it.GetSize(),
			time.Unix(0, it.GetMtimeNs()).Format("2006-01-02 15:04"), state, name); err != nil {
			return err
		}
	}
	return nil
}

// modeString is the first column of ls -l.
func modeString(it *nodepb.Item) string {
	mode := os.FileMode(it.GetMode() & 0o777)
	for bit, m := range map[uint32]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if it.GetMode()&bit != 0 {
			mode |= m
		}
	}
	kind := map[string]byte{"dir": 'd', "symlink": 'l', "file": '-'}[it.GetKind()]
	if kind == 0 {
		kind = '?'
	}
	b := []byte(mode.Perm().String())
	b[0] = kind
	special := func(at int, set bool, with, without byte) {
		if !set {
			return
		}
		if b[at] == 'x' {
			b[at] = with
		} else {
			b[at] = without
		}
	}
	special(3, mode&os.ModeSetuid != 0, 's', 'S')
	special(6, mode&os.ModeSetgid != 0, 's', 'S')
	special(9, mode&os.ModeSticky != 0, 't', 'T')
	return string(b)
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

func groupName(gid uint32) string {
	id := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

// entryJSON is one name in JSON; also the first part of stat's.
type entryJSON struct {
	Name         string `json:"name"`
	NameBase64   string `json:"name_base64,omitempty"`
	Kind         string `json:"kind"`
	Size         int64  `json:"size"`
	Mode         string `json:"mode"` // octal
	UID          uint32 `json:"uid"`
	GID          uint32 `json:"gid"`
	Mtime        string `json:"mtime"` // RFC 3339
	MtimeNs      int64  `json:"mtime_ns"`
	ID           string `json:"id,omitempty"` // of the object
	Target       string `json:"target,omitempty"`
	TargetBase64 string `json:"target_base64,omitempty"`
	State        string `json:"state,omitempty"`
	Source       string `json:"source,omitempty"` // of a file registered here: ok, changed, gone
}

func newEntryJSON(it *nodepb.Item) entryJSON {
	e := entryJSON{
		Kind: it.GetKind(), Size: it.GetSize(), Mode: fmt.Sprintf("%04o", it.GetMode()), UID: it.GetUid(), GID: it.GetGid(),
		Mtime: time.Unix(0, it.GetMtimeNs()).UTC().Format(time.RFC3339Nano), MtimeNs: it.GetMtimeNs(),
		ID: it.GetObject(), State: it.GetState(), Source: it.GetSource(),
	}
	e.Name, e.NameBase64 = jsonText(it.GetPath())
	e.Target, e.TargetBase64 = jsonText(it.GetTarget())
	return e
}

// listJSON prints {"path": ..., "entries": [...]}, a line for each entry.
func listJSON(out io.Writer, path string, items []*nodepb.Item) error {
	head := struct {
		Path       string `json:"path"`
		PathBase64 string `json:"path_base64,omitempty"`
	}{}
	head.Path, head.PathBase64 = jsonText(path)
	h, err := json.Marshal(head)
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	fmt.Fprintf(out, "%s,\"entries\":[", h[:len(h)-1])
	for n, it := range items {
		b, err := json.Marshal(newEntryJSON(it))
		if err != nil {
			return fmt.Errorf("print JSON: %w", err)
		}
		sep := ",\n"
		if n == 0 {
			sep = "\n"
		}
		fmt.Fprintf(out, "%s%s", sep, b)
	}
	_, err = fmt.Fprint(out, "]}\n")
	return err
}
