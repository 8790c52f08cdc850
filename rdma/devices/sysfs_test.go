package devices

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree writes files under a new directory; a name that ends in -> becomes a
// symbolic link.
func tree(t *testing.T, files map[string]string) System {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	return System{
		Sys: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev"),
		Addrs: func(netdev string) []netip.Prefix {
			if netdev != "ens1" {
				return nil
			}
			return []netip.Prefix{netip.MustParsePrefix("10.0.4.7/22"), netip.MustParsePrefix("fd00:1::7/64")}
		},
	}
}

const zeroGID = "0000:0000:0000:0000:0000:0000:0000:0000"

// machine is a RoCE card with one port, an InfiniBand port that is down, and
// an iWARP card that programs have no access to.
func machine() map[string]string {
	return map[string]string{
		"sys/class/infiniband/mlx5_0/node_type":                  "1: CA",
		"sys/class/infiniband/mlx5_0/fw_ver":                     "22.31.1014",
		"sys/class/infiniband/mlx5_0/device/numa_node":           "1",
		"sys/class/infiniband/mlx5_0/ports/1/state":              "4: ACTIVE",
		"sys/class/infiniband/mlx5_0/ports/1/phys_state":         "5: LinkUp",
		"sys/class/infiniband/mlx5_0/ports/1/link_layer":         "Ethernet",
		"sys/class/infiniband/mlx5_0/ports/1/rate":               "100 Gb/sec (4X EDR)",
		"sys/class/infiniband/mlx5_0/ports/1/lid":                "0x0",
		"sys/class/infiniband/mlx5_0/ports/1/gids/0":             "fe80:0000:0000:0000:0e42:a1ff:fe12:3456",
		"sys/class/infiniband/mlx5_0/ports/1/gids/1":             "fe80:0000:0000:0000:0e42:a1ff:fe12:3456",
		"sys/class/infiniband/mlx5_0/ports/1/gids/2":             "0000:0000:0000:0000:0000:ffff:0a00:0407",
		"sys/class/infiniband/mlx5_0/ports/1/gids/10":            "fd00:0001:0000:0000:0000:0000:0000:0007",
		"sys/class/infiniband/mlx5_0/ports/1/gids/3":             "0000:0000:0000:0000:0000:ffff:0a00:0407",
		"sys/class/infiniband/mlx5_0/ports/1/gids/4":             zeroGID,
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0":  "IB/RoCE v1",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1":  "RoCE v2",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2":  "IB/RoCE v1",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3":  "RoCE v2",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/10": "RoCE v2",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0":  "ens1",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/1":  "ens1",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/2":  "ens1",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3":  "ens1",
		"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/10": "ens1",
		"sys/class/net/ens1/mtu":                                 "1500",
		"sys/class/infiniband_verbs/uverbs0/ibdev":               "mlx5_0",
		"sys/class/infiniband_verbs/abi_version":                 "6",
		"dev/infiniband/uverbs0":                                 "",

		"sys/class/infiniband/mlx5_1/node_type":          "1: CA",
		"sys/class/infiniband/mlx5_1/ports/1/state":      "1: DOWN",
		"sys/class/infiniband/mlx5_1/ports/1/phys_state": "2: Polling",
		"sys/class/infiniband/mlx5_1/ports/1/link_layer": "InfiniBand",
		"sys/class/infiniband/mlx5_1/ports/1/lid":        "0xffff",
		"sys/class/infiniband/mlx5_1/ports/1/gids/0":     "fe80:0000:0000:0000:0000:0000:0000:0000",
		"sys/class/infiniband/mlx5_1/ports/2/state":      "4: ACTIVE",
		"sys/class/infiniband/mlx5_1/ports/2/link_layer": "InfiniBand",
		"sys/class/infiniband/mlx5_1/ports/2/lid":        "0x12",
		"sys/class/infiniband/mlx5_1/ports/2/gids/0":     "fe80:0000:0000:0000:0e42:a1ff:fe12:3457",
		"sys/class/infiniband/mlx5_1/device/net/ib0/x":   "",
		"sys/class/net/ib0/mtu":                          "2044",
		"sys/class/infiniband_verbs/uverbs1/ibdev":       "mlx5_1", // without its file in /dev

		"sys/class/infiniband/siw0/node_type":          "4: RNIC",
		"sys/class/infiniband/siw0/parent":             "eth9",
		"sys/class/infiniband/siw0/ports/1/state":      "4: ACTIVE",
		"sys/class/infiniband/siw0/ports/1/link_layer": "Ethernet",
		"sys/class/infiniband/siw0/ports/1/gids/0":     "fe54:00ff:fe00:0000:0000:0000:0000:0000",
	}
}

func TestDevicesOfASysfsTree(t *testing.T) {
	t.Parallel()
	all, err := tree(t, machine()).Devices()
	require.NoError(t, err)
	require.Len(t, all, 3)

	roce := all[0]
	require.Equal(t, "mlx5_0", roce.Name)
	require.Equal(t, KindCA, roce.Kind)
	require.Equal(t, "22.31.1014", roce.Firmware)
	require.Equal(t, 1, roce.NUMA)
	require.NoError(t, roce.OpenError)
	require.Equal(t, "uverbs0", filepath.Base(roce.Verbs))
	p := roce.Ports[0]
	require.True(t, p.Active())
	require.Equal(t, Port{
		Number: 1, State: "ACTIVE", Physical: "LinkUp", Link: LinkEthernet, Rate: "100 Gb/sec (4X EDR)",
		Netdev: "ens1", NetMTU: 1500, MTU: 1024, GIDs: p.GIDs,
	}, p)
	require.Equal(t, []GID{
		{0, netip.MustParseAddr("fe80::e42:a1ff:fe12:3456"), TypeRoCEv1, "ens1", 0},
		{1, netip.MustParseAddr("fe80::e42:a1ff:fe12:3456"), TypeRoCEv2, "ens1", 0},
		{2, netip.MustParseAddr("::ffff:10.0.4.7"), TypeRoCEv1, "ens1", 118},
		{3, netip.MustParseAddr("::ffff:10.0.4.7"), TypeRoCEv2, "ens1", 118},
		{10, netip.MustParseAddr("fd00:1::7"), TypeRoCEv2, "ens1", 64},
	}, p.GIDs)

	ib := all[1]
	require.ErrorIs(t, ib.OpenError, os.ErrNotExist)
	require.Len(t, ib.Ports, 2)
	require.False(t, ib.Ports[0].Active())
	require.Empty(t, ib.Ports[0].GIDs, "a prefix alone is no GID")
	require.Equal(t, 0x12, ib.Ports[1].LID)
	require.Equal(t, 2048, ib.Ports[1].MTU)
	require.Equal(t, TypeIB, ib.Ports[1].GIDs[0].Type)
	require.Equal(t, -1, ib.NUMA)

	iwarp := all[2]
	require.Equal(t, KindRNIC, iwarp.Kind)
	require.Empty(t, iwarp.Verbs)
	require.Equal(t, "eth9", iwarp.Ports[0].Netdev)
	require.Equal(t, TypeIWARP, iwarp.Ports[0].GIDs[0].Type)
}

func TestNoRDMAInTheKernelIsNoDevice(t *testing.T) {
	t.Parallel()
	all, err := tree(t, map[string]string{"sys/class/net/lo/mtu": "65536"}).Devices()
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestThisMachineCanBeAsked(t *testing.T) {
	t.Parallel()
	_, err := Host().Devices()
	require.NoError(t, err)
	_, err = Memlock()
	require.NoError(t, err)
}
