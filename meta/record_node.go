package meta

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta/metapb"
)

// NodeInfo is what a running node tells the others of itself.
type NodeInfo struct {
	Node        chunk.NodeID
	Incarnation uint64 // new at every start
	Name        string
	Zone        string
	Addrs       map[string]string // transport to HOST:PORT
	Host        string            // of the machine: tells a restart from a double
	ProtoMin    uint32
	ProtoMax    uint32
	Features    []string
	Kind        string // daemon, embedded, foreign
	// SeenS is when the node last wrote itself on the roll, in seconds since
	// 1970 by its own clock; 0: not known.
	SeenS int64
}

// Peer returns how to reach the node.
func (n NodeInfo) Peer() chunk.Peer {
	return chunk.Peer{Node: n.Node, Incarnation: n.Incarnation, Name: n.Name, Zone: n.Zone, Addrs: n.Addrs}
}

func marshalNode(n NodeInfo) ([]byte, error) {
	if n.Node.IsZero() {
		return nil, fmt.Errorf("write node %q: it has no id", n.Name)
	}
	b, err := proto.Marshal(&metapb.Node{
		Id: n.Node[:], Incarnation: n.Incarnation, Name: n.Name, Zone: n.Zone, Addrs: n.Addrs,
		Host: n.Host, ProtoMin: n.ProtoMin, ProtoMax: n.ProtoMax, Features: n.Features, Kind: n.Kind,
		SeenS: n.SeenS,
	})
	if err != nil {
		return nil, fmt.Errorf("write node %q: %w", n.Name, err)
	}
	return b, nil
}

func unmarshalNode(id chunk.NodeID, b []byte) (NodeInfo, error) {
	var m metapb.Node
	if err := proto.Unmarshal(b, &m); err != nil {
		return NodeInfo{}, fmt.Errorf("read node %s: %w: %w", id.Short(), ErrFormat, err)
	}
	got, err := chunk.NodeIDFrom(m.Id)
	if err != nil {
		return NodeInfo{}, fmt.Errorf("read node %s: %w: %w", id.Short(), ErrFormat, err)
	}
	if got != id {
		return NodeInfo{}, fmt.Errorf("read node %s: %w: it names %s", id.Short(), ErrFormat, got.Short())
	}
	return NodeInfo{
		Node: id, Incarnation: m.Incarnation, Name: m.Name, Zone: m.Zone, Addrs: m.Addrs,
		Host: m.Host, ProtoMin: m.ProtoMin, ProtoMax: m.ProtoMax, Features: m.Features, Kind: m.Kind,
		SeenS: m.SeenS,
	}, nil
}

// providerRecord is one node's word that it holds some or all of a set.
type providerRecord struct {
	keeper   bool
	complete bool
}

// marshalProvider returns the record; old is as in MarshalEntry.
func marshalProvider(p providerRecord, old []byte) ([]byte, error) {
	m := &metapb.Provider{}
	if old != nil {
		if err := proto.Unmarshal(old, m); err != nil {
			return nil, fmt.Errorf("rewrite provider: %w: %w", ErrFormat, err)
		}
	}
	m.Keeper, m.Complete = p.keeper, p.complete
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write provider: %w", err)
	}
	return b, nil
}

// unmarshalProvider reads the record of field field of a set.
func unmarshalProvider(field string, b []byte) (chunk.NodeID, providerRecord, error) {
	id, err := chunk.ParseNodeID(field)
	if err != nil {
		return id, providerRecord{}, fmt.Errorf("read provider: %w: %w", ErrFormat, err)
	}
	var m metapb.Provider
	if err := proto.Unmarshal(b, &m); err != nil {
		return id, providerRecord{}, fmt.Errorf("read provider %s: %w: %w", id.Short(), ErrFormat, err)
	}
	return id, providerRecord{keeper: m.Keeper, complete: m.Complete}, nil
}
