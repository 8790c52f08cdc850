package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/node/doctor"
)

// oneRoCE is a machine with one software RoCE device.
func oneRoCE(t *testing.T) *doctor.Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"class/infiniband/rxe0/node_type":                 "1: CA",
		"class/infiniband/rxe0/ports/1/state":             "4: ACTIVE",
		"class/infiniband/rxe0/ports/1/phys_state":        "5: LinkUp",
		"class/infiniband/rxe0/ports/1/link_layer":        "Ethernet",
		"class/infiniband/rxe0/ports/1/rate":              "2.5 Gb/sec (1X SDR)",
		"class/infiniband/rxe0/ports/1/gids/0":            "fe80:0000:0000:0000:c85f:20ff:fec5:08ae",
		"class/infiniband/rxe0/ports/1/gids/1":            "0000:0000:0000:0000:0000:ffff:0a4d:0001",
		"class/infiniband/rxe0/ports/1/gid_attrs/types/0": "RoCE v2",
		"class/infiniband/rxe0/ports/1/gid_attrs/types/1": "RoCE v2",
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": "p0",
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1": "p0",
		"class/net/p0/mtu":                                "1500",
		"class/infiniband_verbs/uverbs0/ibdev":            "rxe0",
		"dev/infiniband/uverbs0":                          "",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	m := doctor.Machine{
		Built:     true,
		Library:   func() error { return nil },
		Memlock:   func() (uint64, error) { return 8 << 30, nil },
		OpenFiles: func() (uint64, error) { return 65536, nil },
		FUSE: func() (doctor.FUSE, []doctor.Problem) {
			return doctor.FUSE{Device: "ok", Fusermount: "/usr/bin/fusermount3", Protocol: "7.41", Passthrough: "offered"}, nil
		},
		Disk: func(dir string) (doctor.Disk, []doctor.Problem) {
			return doctor.Disk{Dir: dir, FileSystem: "xfs", Free: 1 << 40, Total: 2 << 40, Reflink: true}, nil
		},
	}
	m.System.Sys, m.System.Dev = root, filepath.Join(root, "dev")
	return &m
}

func examined(t *testing.T, m *doctor.Machine, env map[string]string, args ...string) result {
	t.Helper()
	var out, errb bytes.Buffer
	a := &app{args: append([]string{"doctor"}, args...), out: &out, err: &errb, machine: m, lookup: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}}
	code := a.run(t.Context())
	return result{out.String(), errb.String(), code}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	r := examined(t, oneRoCE(t), nil, "--cache-dir", "/c")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, `blocks  would be moved by rdma: over rxe0:1; over TCP with nodes that cannot be reached so
rdma    built in, libibverbs loaded; 1 device
fuse    protocol 7.41, passthrough offered, fusermount3 at /usr/bin/fusermount3
limits  8 GiB of locked memory, 65536 open files
cache   /c on xfs, with reflinks, 1 TiB free of 2 TiB

PORT    STATE   LINK      RATE        NETDEV  MTU          GID  TYPE     ADDRESS                   CHOSEN
rxe0:1  ACTIVE  Ethernet  2.5 Gb/sec  p0      1024 (1500)  0    RoCE v2  fe80::c85f:20ff:fec5:8ae  -
                                                           1    RoCE v2  10.77.0.1                 rail 1: routable, RoCE v2

problems
- rxe0:1: the interface's MTU of 1500 bytes leaves room for RDMA packets of 1024 only.
    To do: set 4200 bytes or more on it, on the switch and on all nodes: ip link set p0 mtu 9000.
`, r.out)
}

func TestDoctorJSON(t *testing.T) {
	t.Parallel()
	r := examined(t, oneRoCE(t), map[string]string{"MC_GID_INDEX": "0"}, "--cache-dir", "/c", "--json")
	require.Equal(t, exitOK, r.code, r.err)
	v := decode(t, r.out)
	require.Equal(t, "rdma", field(t, v, "protocol"))
	rail := field(t, v, "rdma.rails").([]any)[0]
	require.Equal(t, "rxe0:1", field(t, rail, "name"))
	require.InDelta(t, 0, field(t, rail, "gid.index"), 0, "MC_GID_INDEX")
	problem := field(t, v, "problems").([]any)[0]
	require.Equal(t, "link-local-only", field(t, problem, "code"))
	require.NotEmpty(t, field(t, problem, "fix"))
}

func TestDoctorFailsWhereItWasAskedForTooMuch(t *testing.T) {
	t.Parallel()
	r := examined(t, oneRoCE(t), nil, "--protocol", "rdma", "--rdma-device", "mlx5_0")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "! mlx5_0: there is no such RDMA device.\n    To do: name one of rxe0:1.\n")
	require.Contains(t, r.err, "see the problems above")

	r = examined(t, oneRoCE(t), nil, "--protocol", "rdma", "--rdma-memory", "64GiB")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "ulimit -l")

	r = examined(t, oneRoCE(t), map[string]string{"MC_GID_INDEX": "9"}, "--gid-index", "1")
	require.Equal(t, exitOK, r.code, "the flag wins")
	r = examined(t, oneRoCE(t), map[string]string{"P2PFS_RDMA_DEVICE": "mlx5_0", "P2PFS_PROTOCOL": "rdma"})
	require.Equal(t, exitFailed, r.code, "the variable counts")
}

func TestDoctorRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		says string
	}{
		{"protocol", nil, []string{"--protocol", "roce"}, `unknown protocol "roce"`},
		{"GID index", nil, []string{"--gid-index", "-3"}, "a GID index is 0 or more"},
		{"GID index in the environment", map[string]string{"MC_GID_INDEX": "one"}, nil, "MC_GID_INDEX: "},
		{"empty directory", nil, []string{"--cache-dir", ""}, "--cache-dir"},
		{"argument", nil, []string{"/mnt"}, "too many arguments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := examined(t, oneRoCE(t), c.env, c.args...)
			require.Equal(t, exitUsage, r.code)
			require.Contains(t, r.err, c.says)
		})
	}
}
