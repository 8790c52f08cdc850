package rdma

import (
	"fmt"
	"net"

	"github.com/p2pfs/p2pfs/chunk"
)

// Address returns where a peer is reached by a protocol, as HOST:PORT.
func Address(p chunk.Peer, protocol string) (string, error) {
	addr, ok := p.Addrs[protocol]
	if !ok || addr == "" {
		return "", fmt.Errorf("it has no %s address", protocol)
	}
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return "", fmt.Errorf("its %s address is %q, want HOST:PORT", protocol, addr)
	}
	return addr, nil
}

// DescribePeer names a peer in messages.
func DescribePeer(p chunk.Peer) string {
	if p.Name == "" {
		return p.Node.Short()
	}
	return p.Name + " (" + p.Node.Short() + ")"
}

// DescribeRefs names blocks in messages.
func DescribeRefs(refs []chunk.BlockRef) string {
	if len(refs) == 1 {
		return fmt.Sprintf("block %d of %s", refs[0].Index, refs[0].Object.Short())
	}
	return fmt.Sprintf("%d blocks", len(refs))
}
