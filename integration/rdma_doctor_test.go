//go:build rdma

package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// doctorReport is what these tests read of what doctor prints.
type doctorReport struct {
	Protocol, Reason string
	RDMA             struct {
		Built bool
		Rails []struct {
			Name string
			MTU  int
			GID  struct{ IP, Type string }
		}
	}
	FUSE     struct{ Device, Passthrough string }
	Problems []struct{ Code, Where, Fix string }
}

// doctor runs the command as a user is told to.
func doctor(t *testing.T, args ...string) (doctorReport, error) {
	t.Helper()
	cmd := exec.Command(world.binary, append([]string{"doctor", "--json", "--cache-dir", t.TempDir()}, args...)...)
	cmd.Stderr = os.Stderr
	out, failed := cmd.Output()
	var r doctorReport
	require.NoError(t, json.Unmarshal(out, &r), "%s", out)
	return r, failed
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %q: %s", args, out)
}

// What doctor says of real devices, and of what can be wrong with them.
func TestRDMADoctor(t *testing.T) {
	r, err := doctor(t)
	require.NoError(t, err)
	require.True(t, r.RDMA.Built)
	require.Equal(t, "rdma", r.Protocol, r.Reason)
	require.Empty(t, r.Problems)
	require.Len(t, r.RDMA.Rails, 2)
	for i, want := range []struct{ name, ip string }{{"rxe0:1", "10.77.0.1"}, {"rxe1:1", "10.77.0.2"}} {
		rail := r.RDMA.Rails[i]
		require.Equal(t, want.name, rail.Name)
		require.Equal(t, want.ip, rail.GID.IP)
		require.Equal(t, "RoCE v2", rail.GID.Type)
		require.Equal(t, 4096, rail.MTU)
	}
	require.Equal(t, "ok", r.FUSE.Device)
	require.Equal(t, "offered", r.FUSE.Passthrough)

	r, err = doctor(t, "--rdma-device", "mlx5_0")
	require.NoError(t, err, "auto goes on over TCP")
	require.Equal(t, "tcp", r.Protocol)
	require.Equal(t, "unknown-device", r.Problems[0].Code)
	require.Equal(t, "name one of rxe0:1, rxe1:1", r.Problems[0].Fix)

	r, err = doctor(t, "--protocol", "rdma", "--gid-index", "7")
	require.Error(t, err)
	require.Equal(t, "bad-gid-index", r.Problems[0].Code)

	ip(t, "link", "set", "p0", "mtu", "1500")
	t.Cleanup(func() { ip(t, "link", "set", "p0", "mtu", "9000") })
	r, err = doctor(t)
	require.NoError(t, err)
	require.Equal(t, "small-mtu", r.Problems[0].Code)
	require.Equal(t, "mtu-mismatch", r.Problems[1].Code)

	// Both ends of the link lose their carrier with either.
	ip(t, "link", "set", "p1", "down")
	t.Cleanup(func() { ip(t, "link", "set", "p1", "up") })
	r, err = doctor(t, "--protocol", "rdma")
	require.Error(t, err)
	require.Equal(t, "none", r.Protocol)
	require.Equal(t, "no-active-port", r.Problems[0].Code)
	r, err = doctor(t)
	require.NoError(t, err, "auto goes on over TCP")
	require.Equal(t, "tcp", r.Protocol)
}

// A user without root's rights: little locked memory, and devices that
// everybody may open, as udev leaves them.
func TestRDMADoctorAsAUserWithLittleLockedMemory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	cmd := exec.Command("bash", "-c", `ulimit -l 64; exec setpriv --reuid nobody --regid nogroup --clear-groups -- "$@"`, "bash",
		world.binary, "doctor", "--json", "--cache-dir", dir, "--protocol", "rdma")
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR=/tmp")
	out, err := cmd.Output()
	require.Error(t, err)
	var r doctorReport
	require.NoError(t, json.Unmarshal(out, &r), "%s", out)
	var codes []string
	for _, p := range r.Problems {
		codes = append(codes, p.Code)
	}
	require.Contains(t, codes, "small-memlock")
}
