package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) traceCommand() *cobra.Command {
	var following bool
	c := &cobra.Command{
		Use:   "trace [--follow] PATH",
		Short: "Show which block of a file came from which node, and when",
		Long: `Show the requests for blocks of a file that this node made: of which node, when, how
long each took, and what came of it. The node remembers the last 8192 requests for
blocks of all files, since it started. With --follow requests are shown as they end,
until the command is interrupted; its JSON is then an object a line.

A block is 'read' when somebody waited for it, else 'ahead'; 'late' when another node
was asked first and took too long; 'twice' when it had come from elsewhere already.

` + exitCodesHelp,
		Example: `  p2pfs trace /mnt/models/llama/model-00001-of-00030.safetensors`,
		Args:    argCount(1, 1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.trace(cmd.Context(), args[0], following) },
	}
	c.Flags().BoolVarP(&following, "follow", "f", false, "go on with what is requested from now on")
	return c
}

// traceJSON is the JSON that trace prints.
type traceJSON struct {
	Path       string      `json:"path"`
	PathBase64 string      `json:"path_base64,omitempty"`
	Forgotten  int64       `json:"forgotten"` // requests, of all files, that are no longer remembered
	Requests   []tracedOne `json:"requests"`
}

type tracedOne struct {
	Block   int64   `json:"block"`
	Node    string  `json:"node"`
	Name    string  `json:"name"`
	Time    string  `json:"time"` // when it was asked for, RFC 3339
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	Read    bool    `json:"read"`
	Late    bool    `json:"late"`
	Twice   bool    `json:"twice"`
	Error   string  `json:"error,omitempty"`
}

func newTraced(e *nodepb.TraceEvent) tracedOne {
	return tracedOne{
		Block: e.GetBlock(), Node: e.GetNode(), Name: e.GetName(),
		Time:    time.Unix(0, e.GetStartedUnixNs()).UTC().Format(time.RFC3339Nano),
		Seconds: time.Duration(e.GetTookNs()).Seconds(), Bytes: e.GetBytes(),
		Read: e.GetDemand(), Late: e.GetHedge(), Twice: e.GetWasted(), Error: e.GetError(),
	}
}

func (a *app) trace(ctx context.Context, name string, following bool) error {
	return a.with(ctx, name, func(ctx context.Context, s *session) error {
		what := "trace " + quoteName(name)
		stream, err := s.ctl.Trace(ctx, &nodepb.TraceRequest{Path: []byte(s.Inside), Follow: following})
		if err != nil {
			return asked(s.Info, what, err)
		}
		out := traceJSON{Requests: []tracedOne{}}
		out.Path, out.PathBase64 = jsonText(s.Path)
		for {
			r, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return a.printTrace(out)
			case err != nil:
				return asked(s.Info, what, err)
			}
			out.Forgotten += r.GetForgotten()
			for _, e := range r.GetEvents() {
				if t := newTraced(e); !following {
					out.Requests = append(out.Requests, t)
				} else if err := a.printTraced(t); err != nil {
					return err
				}
			}
		}
	})
}

// row shows one request for people.
func (t tracedOne) row() []string {
	at := t.Time
	if when, err := time.Parse(time.RFC3339Nano, t.Time); err == nil {
		at = when.Local().Format("15:04:05.000")
	}
	why := "ahead"
	if t.Read {
		why = "read"
	}
	if t.Late {
		why += ", late"
	}
	if t.Twice {
		why += ", twice"
	}
	came := formatSize(t.Bytes)
	if t.Error != "" {
		came = t.Error
	}
	return []string{fmt.Sprint(t.Block), orDash(t.Name), shortID(t.Node), at, fmt.Sprintf("%.0f ms", 1000*t.Seconds), why, came}
}

// printTraced prints one request as it comes.
func (a *app) printTraced(t tracedOne) error {
	if a.json {
		return json.NewEncoder(a.out).Encode(t)
	}
	r := t.row()
	return a.printf("%-6s  %-16s  %-8s  %s  %8s  %-12s  %s\n", r[0], r[1], r[2], r[3], r[4], r[5], r[6])
}

func (a *app) printTrace(out traceJSON) error {
	if a.json {
		return a.printJSON(out)
	}
	var t table
	t.row("BLOCK", "FROM", "NODE", "ASKED AT", "TOOK", "WHY", "CAME")
	for _, r := range out.Requests {
		t.row(r.row()...)
	}
	if err := t.print(a.out); err != nil {
		return err
	}
	if out.Forgotten > 0 {
		return a.printf("\n%s of this node, for whatever files, %s no longer remembered\n", plural(out.Forgotten, "earlier request"), isAre(out.Forgotten))
	}
	return nil
}

func isAre(n int64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
