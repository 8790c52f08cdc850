package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

const eventsHelp = `Print what happens in the cluster, one line for each event: names that are
published, replaced, unpublished or renamed, directories made and removed, nodes
that come and go, and who begins and ends to provide a set of files.

With --follow the command prints what comes until it is interrupted or the mount
ends. Without it, it prints what the metadata store still knows of what has been,
and ends. --from begins after the position of an earlier event. etcd remembers
until it compacts its history; Redis remembers nothing, unless the nodes are
mounted with --stream.

Where events were lost there is an event that says so: gap. While the store is
out of reach there are none; store-down and store-up say when.

A line is: time, type, path or node, and what else is known. The time is that of
a Redis server; with etcd, when this node heard of it. The node of a published
file is one that keeps its bytes, most times the one that published it. What is
registered as a tree appears at once, and its events are in the order of names.
Paths are those of now: where a directory is no more, ? and its number stand for
it.

` + exitCodesHelp

func (a *app) eventsCommand() *cobra.Command {
	req := &nodepb.EventsRequest{}
	var under string
	cmd := &cobra.Command{
		Use:   "events [--follow] [--from POSITION] [--under PATH]",
		Short: "Print what happens to names and nodes in the cluster",
		Long:  eventsHelp,
		Example: `  p2pfs events --follow
  p2pfs events --follow --json --under /mnt/models/ckpt
  p2pfs events --from 18374`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !req.Follow && req.From == "" {
				req.From = "oldest"
			}
			return a.events(cmd.Context(), req, under)
		},
	}
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "go on with what comes")
	cmd.Flags().StringVar(&req.From, "from", "", "begin after the event at `POSITION`, or with the oldest one that is known (default oldest; with --follow now)")
	cmd.Flags().StringVar(&under, "under", "", "only names at or below `PATH` under the mount")
	return cmd
}

// eventJSON is one line of events --json.
type eventJSON struct {
	Time       string `json:"time"`
	Type       string `json:"type"`
	Path       string `json:"path,omitempty"`
	PathBase64 string `json:"path_base64,omitempty"`
	From       string `json:"from,omitempty"`
	FromBase64 string `json:"from_base64,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Size       *int64 `json:"size,omitempty"`
	Object     string `json:"object,omitempty"`
	Replaced   string `json:"replaced,omitempty"`
	Set        string `json:"set,omitempty"`
	Node       string `json:"node,omitempty"`
	NodeName   string `json:"node_name,omitempty"`
	Keeper     bool   `json:"keeper,omitempty"`
	Complete   bool   `json:"complete,omitempty"`
	Position   string `json:"position,omitempty"`
	Note       string `json:"note,omitempty"`
}

func newEventJSON(e *nodepb.Event) eventJSON {
	j := eventJSON{
		Time: time.Unix(0, e.GetTimeUnixNs()).UTC().Format(time.RFC3339Nano), Type: e.GetType(), Kind: e.GetKind(),
		Object: e.GetObject(), Replaced: e.GetReplaced(), Set: e.GetSet(), Node: e.GetNode(), NodeName: e.GetNodeName(),
		Keeper: e.GetKeeper(), Complete: e.GetComplete(), Position: e.GetPosition(), Note: e.GetNote(),
	}
	j.Path, j.PathBase64 = jsonText(e.GetPath())
	j.From, j.FromBase64 = jsonText(e.GetFromPath())
	if e.GetKind() == "file" {
		size := e.GetSize()
		j.Size = &size
	}
	return j
}

func (a *app) events(ctx context.Context, req *nodepb.EventsRequest, under string) error {
	err := a.with(ctx, under, func(ctx context.Context, s *session) error {
		if under != "" {
			req.Under = []byte(s.Inside)
		}
		conn, ok := s.conn.(grpc.ClientConnInterface)
		if !ok {
			return fmt.Errorf("events: no connection to the node %s", s.Info)
		}
		stream, err := nodepb.NewEventsClient(conn).Follow(ctx, req)
		if err != nil {
			return asked(s.Info, "events", err)
		}
		for {
			r, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case req.GetFollow() && status.Code(err) == codes.Unavailable && s.PID != 0 && !s.Alive():
				return nil // it ended, and could not say so any more
			case err != nil:
				return asked(s.Info, "events", err)
			}
			if err := a.printEvents(r.GetEvents()); err != nil {
				return err
			}
		}
	})
	if req.GetFollow() && errors.Is(err, context.Canceled) {
		return nil // that is how following ends
	}
	return err
}

func (a *app) printEvents(events []*nodepb.Event) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, ev := range events {
		if !a.json {
			b.WriteString(a.eventLine(ev))
		} else if err := e.Encode(newEventJSON(ev)); err != nil {
			return fmt.Errorf("print JSON: %w", err)
		}
	}
	return a.printf("%s", b.String())
}

// eventLine returns an event as one line of text. Names are always quoted: a
// line break in one must not make two lines.
func (a *app) eventLine(e *nodepb.Event) string {
	var b strings.Builder
	word := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	b.WriteString(time.Unix(0, e.GetTimeUnixNs()).Format("2006-01-02T15:04:05.000Z07:00"))
	word("%s", e.GetType())
	if len(e.GetFromPath()) > 0 {
		word("%s ->", quoteName("/"+string(e.GetFromPath())))
	}
	if len(e.GetPath()) > 0 {
		word("%s", quoteName(eventPath(e.GetPath())))
	}
	if e.GetKind() == "file" {
		word("size=%d", e.GetSize())
	} else if e.GetKind() == "symlink" {
		word("symlink")
	}
	for _, f := range []struct{ key, value string }{
		{"object", e.GetObject()}, {"replaced", e.GetReplaced()}, {"set", setOf(e)}, {"node", nodeOf(e)},
	} {
		if f.value != "" {
			word("%s=%s", f.key, f.value)
		}
	}
	if e.GetKeeper() {
		word("keeper")
	}
	if e.GetComplete() {
		word("complete")
	}
	if e.GetPosition() != "" {
		word("at=%s", e.GetPosition())
	}
	if e.GetNote() != "" {
		word("%s", quoteName(e.GetNote()))
	}
	return b.String() + "\n"
}

// eventPath returns a path as events show it.
func eventPath(p []byte) string {
	if p[0] == '?' {
		return string(p)
	}
	return "/" + string(p)
}

// setOf returns the set of events that are about one.
func setOf(e *nodepb.Event) string {
	if len(e.GetPath()) > 0 {
		return ""
	}
	return e.GetSet()
}

func nodeOf(e *nodepb.Event) string {
	if e.GetNodeName() == "" {
		return e.GetNode()
	}
	return quoteName(e.GetNodeName())
}
