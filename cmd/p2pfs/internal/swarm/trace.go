package swarm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

// request is one line of the trace: a request for a block that a receiver made.
type request struct {
	Receiver string  `json:"receiver"`
	Block    int64   `json:"block"`
	From     string  `json:"from"`
	Asked    float64 `json:"asked"`   // seconds after the begin
	Seconds  float64 `json:"seconds"` // it took
	Bytes    int64   `json:"bytes"`
	Read     bool    `json:"read,omitempty"`
	Late     bool    `json:"late,omitempty"`
	Twice    bool    `json:"twice,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// writeTrace writes what every receiver requested, one after the other.
func (b *bench) writeTrace(ctx context.Context) error {
	f, err := os.Create(b.Trace)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	enc := json.NewEncoder(out)
	for _, n := range b.receivers {
		err := n.trace(ctx, func(e *nodepb.TraceEvent) error {
			return enc.Encode(request{
				Receiver: n.host.Name, Block: e.GetBlock(), From: e.GetName(),
				Asked: time.Unix(0, e.GetStartedUnixNs()).Sub(b.began).Seconds(), Seconds: time.Duration(e.GetTookNs()).Seconds(),
				Bytes: e.GetBytes(), Read: e.GetDemand(), Late: e.GetHedge(), Twice: e.GetWasted(), Error: e.GetError(),
			})
		})
		if err != nil {
			return fmt.Errorf("write the requests of host %s: %w", n.host.Name, err)
		}
	}
	return errors.Join(out.Flush(), f.Close())
}

// trace calls fn for each request that the node remembers.
func (n *node) trace(ctx context.Context, fn func(*nodepb.TraceEvent) error) error {
	s, err := n.ctl.Trace(ctx, &nodepb.TraceRequest{Path: []byte(fileName)})
	for err == nil {
		var r *nodepb.TraceReply
		if r, err = s.Recv(); err != nil {
			break
		}
		for _, e := range r.GetEvents() {
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
