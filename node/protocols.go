package node

import (
	"strconv"

	"github.com/p2pfs/p2pfs/rdma"
)

// Versions of the peer protocol this program speaks.
const (
	protoMin = 1
	protoMax = 1
)

// Protocols returns the version of each protocol between programs: what a
// person compares when two nodes do not understand each other.
func Protocols() map[string]int {
	return map[string]int{"peer": protoMax, "blocks": blocksProto()}
}

func blocksProto() int {
	n, err := strconv.Atoi(rdma.Proto)
	if err != nil {
		return 0
	}
	return n
}
