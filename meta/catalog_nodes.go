package meta

import (
	"context"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// rollSlot lists every node that ever joined: what it said then, unleased.
const rollSlot Slot = "nodes"

// NodeState is a node of the cluster, alive or not. Of a dead one the rest is
// what it said when it joined last.
type NodeState struct {
	NodeInfo
	Alive bool
}

// Enroll writes a node on the roll, and that it runs now. JoinNode does it once
// for each start; a node that runs for long repeats it, so that others can
// tell how long it has been gone when it is.
func (c *Catalog) Enroll(ctx context.Context, info NodeInfo) error {
	info.SeenS = time.Now().Unix()
	return c.enroll(ctx, info)
}

func (c *Catalog) enroll(ctx context.Context, info NodeInfo) error {
	b, err := marshalNode(info)
	if err != nil {
		return err
	}
	if _, err := c.slots.Apply(ctx, rollSlot, nil, []Set{{Field: info.Node.String(), Value: b}}); err != nil {
		return fmt.Errorf("enroll node %q: %w", info.Name, err)
	}
	return nil
}

// Nodes returns every node that ever joined, in no order: for people, not for
// choosing providers.
func (c *Catalog) Nodes(ctx context.Context) ([]NodeState, error) {
	var out []NodeState
	next := ""
	for first := true; first || next != ""; first = false {
		p, err := c.slots.List(ctx, rollSlot, next, MaxSets)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		page, err := c.nodeStates(ctx, p.Records)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		out = append(out, page...)
		next = p.Next
	}
	return out, nil
}

func (c *Catalog) nodeStates(ctx context.Context, roll []Record) ([]NodeState, error) {
	var states []NodeState
	var keys []Key
	for _, r := range roll {
		id, err := chunk.ParseNodeID(r.Field)
		if err == nil {
			var info NodeInfo
			if info, err = unmarshalNode(id, r.Value); err == nil {
				states = append(states, NodeState{NodeInfo: info})
				keys = append(keys, Key{nodeSlot(id), self})
				continue
			}
		}
		c.log.Warn("skipping an unreadable node record", "field", r.Field, "err", err)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	recs, err := c.slots.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for i, r := range recs {
		if r.Value == nil {
			continue
		}
		info, err := unmarshalNode(states[i].Node, r.Value)
		if err != nil {
			c.log.Warn("skipping an unreadable node record", "node", states[i].Node, "err", err)
			continue
		}
		info.SeenS = states[i].SeenS // the roll's alone
		states[i] = NodeState{NodeInfo: info, Alive: true}
	}
	return states, nil
}
