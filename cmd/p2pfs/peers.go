package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) peersCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "peers [--all]",
		Short: "Show the nodes of the cluster",
		Long: `Show the nodes of the cluster, and the bytes this node has received from each and
sent to each since it started. One that is gone does not answer the store: it was
ended, killed or cut off. Those that have been gone for seven days are shown with
--all only. While the store is out of reach, the nodes are shown as they were
known last.

` + exitCodesHelp,
		Example: `  p2pfs peers`,
		Args:    argCount(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.peers(cmd.Context(), all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "show nodes that ended long ago, too")
	return cmd
}

// peersJSON is the JSON that peers prints.
type peersJSON struct {
	Peers []peerJSON `json:"peers"`
	Note  string     `json:"note,omitempty"` // why this may not be how things are now
}

type peerJSON struct {
	Node          string            `json:"node"`
	Name          string            `json:"name"`
	Zone          string            `json:"zone"`
	Addrs         map[string]string `json:"addrs"`
	Alive         bool              `json:"alive"`
	Self          bool              `json:"self"`
	ReceivedBytes uint64            `json:"received_bytes"`
	SentBytes     uint64            `json:"sent_bytes"`
	Seen          string            `json:"seen,omitempty"` // when it last said that it runs, RFC 3339, by its clock
	Error         string            `json:"error,omitempty"`
}

func (a *app) peers(ctx context.Context, all bool) error {
	return a.once(ctx, "", func(ctx context.Context, s *session) error {
		r, err := s.ctl.Peers(ctx, &nodepb.PeersRequest{All: all})
		if err != nil {
			return asked(s.Info, "list the peers", err)
		}
		out := peersJSON{Peers: []peerJSON{}, Note: r.GetNote()}
		for _, p := range r.GetPeers() {
			seen := ""
			if ns := p.GetSeenUnixNs(); ns != 0 {
				seen = time.Unix(0, ns).UTC().Format(time.RFC3339)
			}
			out.Peers = append(out.Peers, peerJSON{
				Seen: seen,
				Node: p.GetNode(), Name: p.GetName(), Zone: p.GetZone(), Addrs: notNil(p.GetAddrs()), Alive: p.GetAlive(),
				Self: p.GetSelf(), ReceivedBytes: p.GetReceivedBytes(), SentBytes: p.GetSentBytes(), Error: p.GetError(),
			})
		}
		if a.json {
			return a.printJSON(out)
		}
		if out.Note != "" {
			if err := a.printf("%s\n\n", out.Note); err != nil {
				return err
			}
		}
		return a.printPeers(out.Peers)
	})
}

func (a *app) printPeers(peers []peerJSON) error {
	var t table
	t.row("NAME", "NODE", "ZONE", "ADDRESS", "STATE", "RECEIVED FROM", "SENT TO")
	for _, p := range peers {
		state := "alive"
		switch {
		case p.Self:
			state = "this node"
		case !p.Alive:
			state = reason("gone", p.Error)
		}
		received, sent := formatSize(int64(p.ReceivedBytes)), formatSize(int64(p.SentBytes))
		if p.Self {
			received, sent = "-", "-"
		}
		t.row(orDash(p.Name), shortID(p.Node), orDash(p.Zone),
			addresses(p.Addrs), state, received, sent)
	}
	return t.print(a.out)
}
