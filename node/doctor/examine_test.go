package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/rdma/devices"
)

// healthy is a machine with two software RoCE devices, of which changes may be
// made. A file is written for each entry of files; "" removes it.
func healthy(t *testing.T, files map[string]string) Machine {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	for i, name := range []string{"rxe0", "rxe1"} {
		n := string(rune('0' + i))
		dir := "sys/class/infiniband/" + name + "/"
		write(dir+"node_type", "1: CA")
		write(dir+"parent", "p"+n)
		write(dir+"ports/1/state", "4: ACTIVE")
		write(dir+"ports/1/phys_state", "5: LinkUp")
		write(dir+"ports/1/link_layer", "Ethernet")
		write(dir+"ports/1/rate", "2.5 Gb/sec (1X SDR)")
		write(dir+"ports/1/gids/0", "fe80:0000:0000:0000:c85f:20ff:fec5:08a"+n)
		write(dir+"ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:000"+string(rune('1'+i)))
		for _, g := range []string{"0", "1"} {
			write(dir+"ports/1/gid_attrs/types/"+g, "RoCE v2")
			write(dir+"ports/1/gid_attrs/ndevs/"+g, "p"+n)
		}
		write("sys/class/net/p"+n+"/mtu", "9000")
		write("sys/class/infiniband_verbs/uverbs"+n+"/ibdev", name)
		write("dev/infiniband/uverbs"+n, "")
	}
	for name, text := range files {
		if text == "" {
			require.NoError(t, os.RemoveAll(filepath.Join(root, name)))
			continue
		}
		write(name, text)
	}
	return Machine{
		System:    devices.System{Sys: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")},
		Built:     true,
		Library:   func() error { return nil },
		Memlock:   func() (uint64, error) { return devices.Unlimited, nil },
		OpenFiles: func() (uint64, error) { return 65536, nil },
		FUSE:      func() (FUSE, []Problem) { return FUSE{Device: "ok", Protocol: "7.41", Passthrough: "offered"}, nil },
		Disk:      func(dir string) (Disk, []Problem) { return Disk{Dir: dir, FileSystem: "ext4", Free: 1 << 40}, nil },
	}
}

func TestExamine(t *testing.T) {
	t.Parallel()
	const port = "sys/class/infiniband/rxe0/ports/1/"
	any := devices.Want{GIDIndex: devices.AnyGID}
	for _, c := range []struct {
		name     string
		files    map[string]string
		change   func(*Config)
		protocol string
		reason   string // part of it
		codes    []devices.Code
		fatal    bool
	}{
		{"all is well", nil, nil, "rdma", "over rxe0:1, rxe1:1", nil, false},
		{"TCP was asked for", map[string]string{"sys/class/infiniband": ""}, func(c *Config) { c.Protocol = "tcp" }, "tcp", "asked for", nil, false},
		{"no device", map[string]string{"sys/class/infiniband": ""}, nil, "tcp", "no RDMA device", []devices.Code{devices.NoDevice}, false},
		{"no device and nothing else wanted", map[string]string{"sys/class/infiniband": ""}, func(c *Config) { c.Protocol = "rdma" }, "none", "no RDMA device", []devices.Code{devices.NoDevice}, true},
		{"a port is down", map[string]string{port + "state": "1: DOWN"}, nil, "rdma", "over rxe1:1", nil, false},
		{
			"all ports are down", map[string]string{port + "state": "1: DOWN", "sys/class/infiniband/rxe1/ports/1/state": "1: DOWN"}, nil,
			"tcp", "rxe0:1: the port is not active", []devices.Code{devices.NoActivePort, devices.NoActivePort}, false,
		},
		{"no file for programs", map[string]string{"dev/infiniband": ""}, nil, "tcp", "cannot be opened", []devices.Code{devices.NoPermission, devices.NoPermission}, false},
		{"no ib_uverbs", map[string]string{"sys/class/infiniband_verbs": ""}, nil, "tcp", "no access", []devices.Code{devices.NoVerbs, devices.NoVerbs}, false},
		{"unknown device", nil, func(c *Config) { c.Want.Devices = []string{"mlx5_0"} }, "tcp", "mlx5_0: there is no such", []devices.Code{devices.UnknownDevice}, false},
		{"bad GID index", nil, func(c *Config) { c.Want.GIDIndex = 9 }, "tcp", "no GID with index 9", []devices.Code{devices.BadGIDIndex, devices.BadGIDIndex}, false},
		{"link-local only", map[string]string{port + "gids/1": zero}, nil, "rdma", "over rxe1:1, rxe0:1", []devices.Code{devices.LinkLocalOnly}, false},
		{"unequal MTUs", map[string]string{"sys/class/net/p0/mtu": "1500"}, nil, "rdma", "over", []devices.Code{devices.SmallMTU, devices.MTUMismatch}, false},
		{"memlock too small", nil, func(c *Config) { c.Machine.Memlock = func() (uint64, error) { return 8 << 20, nil } }, "tcp", "may be locked", []devices.Code{devices.SmallMemlock}, false},
		{
			"memlock too small and nothing else wanted", nil, func(c *Config) {
				c.Protocol = "rdma"
				c.Machine.Memlock = func() (uint64, error) { return 8 << 20, nil }
			}, "none", "may be locked", []devices.Code{devices.SmallMemlock}, true,
		},
		{"too little for two devices", nil, func(c *Config) { c.Memory = 48 << 20 }, "tcp", "too few for 2 devices", []devices.Code{devices.SmallMemory}, false},
		{"not built", nil, func(c *Config) { c.Machine.Built = false }, "tcp", "built without RDMA", []devices.Code{NotBuilt}, false},
		{"no library", nil, func(c *Config) { c.Machine.Library = func() error { return errors.New("no such file") } }, "tcp", "libibverbs", []devices.Code{NoLibrary}, false},
		{"few files", nil, func(c *Config) { c.Machine.OpenFiles = func() (uint64, error) { return 1024, nil } }, "rdma", "over", []devices.Code{FewFiles}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Protocol: "auto", Want: any, Memory: 1 << 30, CacheDirs: []string{"/c"}, Machine: healthy(t, c.files)}
			if c.change != nil {
				c.change(&cfg)
			}
			r, err := Examine(cfg)
			require.NoError(t, err)
			var codes []devices.Code
			for _, p := range r.Problems {
				codes = append(codes, p.Code)
				require.NotEmpty(t, p.What)
				require.NotEmpty(t, p.Fix)
			}
			require.Equal(t, c.codes, codes)
			require.Equal(t, c.protocol, r.Protocol)
			require.Contains(t, r.Reason, c.reason)
			require.Equal(t, c.fatal, r.Fatal())
		})
	}
}

const zero = "0000:0000:0000:0000:0000:0000:0000:0000"

func TestWhatIsReported(t *testing.T) {
	t.Parallel()
	r, err := Examine(Config{Protocol: "auto", Want: devices.Want{GIDIndex: devices.AnyGID}, Memory: 1 << 30, CacheDirs: []string{"/c"}, Machine: healthy(t, nil)})
	require.NoError(t, err)
	require.Equal(t, Limits{Memlock: -1, OpenFiles: 65536}, r.Limits)
	require.Len(t, r.RDMA.Devices, 2)
	require.Equal(t, "ok", r.RDMA.Devices[0].Access)
	require.Equal(t, "loaded", r.RDMA.Library)
	gid := GID{Index: 1, GID: "0000:0000:0000:0000:0000:ffff:0a4d:0001", IP: "10.77.0.1", Type: "RoCE v2", Netdev: "p0", Routable: true}
	require.Equal(t, gid, r.RDMA.Devices[0].Ports[0].GIDs[1])
	require.Equal(t, Rail{Name: "rxe0:1", GID: gid, MTU: 4096, NUMA: -1, Why: "routable, RoCE v2"}, r.RDMA.Rails[0])
	require.Equal(t, []Disk{{Dir: "/c", FileSystem: "ext4", Free: 1 << 40}}, r.Disks)
}

func TestWhatCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	_, err := Examine(Config{Protocol: "roce"})
	require.ErrorContains(t, err, `unknown protocol "roce"`)
	_, err = Examine(Config{Protocol: "auto", Want: devices.Want{GIDIndex: -2}})
	require.ErrorContains(t, err, "not -2")
}
