package verbs

import (
	"fmt"

	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/devices"
)

// leastFetched is the least memory for fetched blocks that is of use, in bytes.
const leastFetched = 16 << 20

// Share divides the bytes that may be registered in all: fetched is the memory
// for fetched blocks, which every device registers for itself and which counts
// as often; served is what is left for files. At most half goes to the former.
func Share(all int64, rails []devices.Rail) (fetched, served int64, err error) {
	names := make(map[string]bool)
	for _, r := range rails {
		names[r.Device] = true
	}
	n := int64(max(len(names), 1))
	fetched = min(rdma.DefaultMemory, all/2/n)
	if fetched < leastFetched {
		return 0, 0, fmt.Errorf("%d bytes of RDMA memory are too few for %d devices, want %d or more", all, n, 2*n*leastFetched)
	}
	return fetched, all - fetched*n, nil
}
