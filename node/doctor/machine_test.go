package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestThisMachineMountsAndLeavesNothingBehind(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	f, problems := lookAtFUSE()
	require.Empty(t, problems)
	require.Equal(t, "ok", f.Device)
	require.Regexp(t, `^7\.\d+$`, f.Protocol)
	require.NotEmpty(t, f.Passthrough)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
	out, err := exec.Command("grep", "-c", tmp, "/proc/self/mounts").Output()
	require.Error(t, err, "still mounted")
	require.Equal(t, "0\n", string(out))
}

func TestDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, problems := lookAtDisk(filepath.Join(dir, "not", "made", "yet"))
	require.NotEmpty(t, d.FileSystem)
	require.Positive(t, d.Total)
	for _, p := range problems {
		require.Equal(t, LittleRoom, p.Code)
	}

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, problems = lookAtDisk(file)
	require.Len(t, problems, 1)
	require.Equal(t, BadCacheDir, problems[0].Code)
	_, problems = lookAtDisk(filepath.Join(file, "below"))
	require.Len(t, problems, 1)
	require.ErrorContains(t, problems[0], unix.ENOTDIR.Error())

	d, _ = lookAtDisk("/dev/shm/p2pfs-cache")
	require.Equal(t, "tmpfs", d.FileSystem)
}

func TestDiskProblems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.Empty(t, diskProblems(Disk{Dir: dir, FileSystem: "ext4", Free: littleRoom}, dir))
	p := diskProblems(Disk{Dir: dir, FileSystem: "nfs", Free: littleRoom - 1}, dir)
	require.Len(t, p, 2)
	require.Equal(t, FarCacheDir, p[0].Code)
	require.Equal(t, LittleRoom, p[1].Code)
}
