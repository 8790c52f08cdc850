package main

import (
	"context"
	"fmt"
	"math"
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
sent to each since it started. Of those it fetches from, also how fast blocks have come
lately, the part of all rates that is (the weight with which work falls to it), the
blocks under way, and how often in a row it failed. One that is gone does not answer the store: it was
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
	Link          *linkJSON         `json:"link,omitempty"` // of nodes that were asked for blocks
}

// linkJSON is how fetching from a node goes.
type linkJSON struct {
	Rate      float64 `json:"rate"`   // bytes per second, lately; 0: unknown
	Weight    float64 `json:"weight"` // its part of the rates of all that may be asked now
	InFlight  int64   `json:"in_flight"`
	Blocks    int64   `json:"blocks"`
	Strikes   int64   `json:"strikes"` // failures in a row
	Penalty   float64 `json:"penalty_seconds"`
	LastError string  `json:"last_error,omitempty"`
}

func newLink(l *nodepb.PeersReply_Link) *linkJSON {
	if l == nil {
		return nil
	}
	return &linkJSON{
		Rate: l.GetRate(), Weight: l.GetWeight(), InFlight: l.GetInFlight(), Blocks: l.GetBlocks(), Strikes: l.GetStrikes(),
		Penalty: time.Duration(l.GetPenaltyNs()).Seconds(), LastError: l.GetLastError(),
	}
}

// cells shows a link to people: rate, weight, blocks under way and failures in
// a row.
func (l *linkJSON) cells() []string {
	if l == nil {
		return []string{"-", "-", "-", "-"}
	}
	rate := "-"
	if l.Rate > 0 {
		rate = formatSize(int64(l.Rate)) + "/s"
	}
	strikes := fmt.Sprint(l.Strikes)
	if l.Penalty > 0 {
		strikes += fmt.Sprintf(", not asked for %.0f s", math.Ceil(l.Penalty))
	}
	return []string{rate, fmt.Sprintf("%.0f%%", 100*l.Weight), fmt.Sprint(l.InFlight), strikes}
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
				Link: newLink(p.GetLink()),
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
	t.row("NAME", "NODE", "ZONE", "ADDRESS", "STATE", "RECEIVED FROM", "SENT TO", "RATE", "WEIGHT", "UNDER WAY", "FAILED")
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
		t.row(append([]string{
			orDash(p.Name), shortID(p.Node), orDash(p.Zone), addresses(p.Addrs), state, received, sent,
		}, p.Link.cells()...)...)
	}
	return t.print(a.out)
}
