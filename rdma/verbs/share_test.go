package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/devices"
)

func TestShare(t *testing.T) {
	t.Parallel()
	rails := func(names ...string) (out []devices.Rail) {
		for i, n := range names {
			out = append(out, devices.Rail{Device: n, Port: i + 1})
		}
		return out
	}
	eight := rails("a", "b", "c", "d", "e", "f", "g", "h")
	for _, c := range []struct {
		name            string
		all             int64
		rails           []devices.Rail
		fetched, served int64 // 0: refused
	}{
		{"one device", 1 << 30, eight[:1], rdma.DefaultMemory, 1<<30 - rdma.DefaultMemory},
		{"none yet", 1 << 30, nil, rdma.DefaultMemory, 1<<30 - rdma.DefaultMemory},
		{"two ports of one device", 1 << 30, rails("a", "a"), rdma.DefaultMemory, 1<<30 - rdma.DefaultMemory},
		{"two devices", 1 << 30, eight[:2], rdma.DefaultMemory, 1<<30 - 2*rdma.DefaultMemory},
		{"eight devices", 1 << 30, eight, 64 << 20, 512 << 20},
		{"the least for one", 64 << 20, eight[:1], 32 << 20, 32 << 20},
		{"the least for two", 64 << 20, eight[:2], 16 << 20, 32 << 20},
		{"too little for four", 64 << 20, eight[:4], 0, 0},
	} {
		fetched, served, err := Share(c.all, c.rails)
		require.Equal(t, c.fetched, fetched, c.name)
		require.Equal(t, c.served, served, c.name)
		if c.fetched == 0 {
			require.ErrorContains(t, err, "want 134217728", c.name)
			continue
		}
		require.NoError(t, err, c.name)
	}
}
