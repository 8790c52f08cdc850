package rdma

import (
	"strconv"

	"github.com/p2pfs/p2pfs/chunk"
)

// Names of what every request between nodes carries. They are valid both as
// HTTP header names and as gRPC metadata keys.
const (
	HeaderProto       = "p2pfs-proto"       // protocol version, decimal
	HeaderCluster     = "p2pfs-cluster"     // 32 hexadecimal digits
	HeaderNode        = "p2pfs-node"        // node it is meant for, 32 hexadecimal digits
	HeaderIncarnation = "p2pfs-incarnation" // of that node, decimal
	HeaderFrom        = "p2pfs-from"        // node that asks, 32 hexadecimal digits
	HeaderToken       = "p2pfs-token"       // 64 hexadecimal digits
)

// Proto is the version of the protocol between nodes.
const Proto = "1"

// Claim is what a request says of itself, as it stands in the headers. It is
// worth nothing until an Authorizer has verified it.
type Claim struct {
	Proto       string
	Cluster     string
	Node        string
	Incarnation string
	From        string
	Token       string
}

// ParseClaim reads a claim by way of get, which returns the value of a header
// or "".
func ParseClaim(get func(name string) string) Claim {
	return Claim{
		Proto:       get(HeaderProto),
		Cluster:     get(HeaderCluster),
		Node:        get(HeaderNode),
		Incarnation: get(HeaderIncarnation),
		From:        get(HeaderFrom),
		Token:       get(HeaderToken),
	}
}

// Each calls set with every name and value, in a fixed order.
func (c Claim) Each(set func(name, value string)) {
	set(HeaderProto, c.Proto)
	set(HeaderCluster, c.Cluster)
	set(HeaderNode, c.Node)
	set(HeaderIncarnation, c.Incarnation)
	set(HeaderFrom, c.From)
	set(HeaderToken, c.Token)
}

// Pairs returns names and values in turn, as gRPC's metadata.Pairs and
// AppendToOutgoingContext take them.
func (c Claim) Pairs() []string {
	kv := make([]string, 0, 12)
	c.Each(func(name, value string) { kv = append(kv, name, value) })
	return kv
}

// FormatIncarnation writes an incarnation as headers carry it.
func FormatIncarnation(n uint64) string { return strconv.FormatUint(n, 10) }

func claimOf(c Credentials, to chunk.Peer) Claim {
	return Claim{
		Proto:       Proto,
		Cluster:     c.Cluster.String(),
		Node:        to.Node.String(),
		Incarnation: FormatIncarnation(to.Incarnation),
		From:        c.Self.String(),
		Token:       c.token(c.Self, to.Node, to.Incarnation),
	}
}
