package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (a *app) peersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "peers",
		Short: "Show the nodes of the cluster",
		Long: `Show every node that ever joined the cluster, and the bytes this node has received
from each and sent to each since it started. One that is gone does not answer the
store: it was ended, killed or cut off.

` + exitCodesHelp,
		Example: `  p2pfs peers`,
		Args:    argCount(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.peers(cmd.Context()) },
	}
}

// peersJSON is the JSON that peers prints.
type peersJSON struct {
	Peers []peerJSON `json:"peers"`
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
	Error         string            `json:"error,omitempty"`
}

func (a *app) peers(ctx context.Context) error {
	return a.once(ctx, "", func(ctx context.Context, s *session) error {
		r, err := s.ctl.Peers(ctx, &nodepb.PeersRequest{})
		if err != nil {
			return asked(s.Info, "list the peers", err)
		}
		out := peersJSON{Peers: []peerJSON{}}
		for _, p := range r.GetPeers() {
			out.Peers = append(out.Peers, peerJSON{
				Node: p.GetNode(), Name: p.GetName(), Zone: p.GetZone(), Addrs: notNil(p.GetAddrs()), Alive: p.GetAlive(),
				Self: p.GetSelf(), ReceivedBytes: p.GetReceivedBytes(), SentBytes: p.GetSentBytes(), Error: p.GetError(),
			})
		}
		if a.json {
			return a.printJSON(out)
		}
		return a.printPeers(out.Peers)
	})
}

func (a *app) printPeers(peers []peerJSON) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tNODE\tZONE\tADDRESS\tSTATE\tRECEIVED FROM\tSENT TO")
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orDash(p.Name), shortID(p.Node), orDash(p.Zone),
			addresses(p.Addrs), state, received, sent)
	}
	return w.Flush()
}
