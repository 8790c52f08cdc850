package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchLimit is how long a run may take on a busy machine.
const benchLimit = 5 * time.Minute

// benchDir is a directory that a run of bench swarm keeps its files in, and
// that must be empty afterwards.
func benchDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(world.root, "bs")
	require.NoError(t, err)
	return dir
}

// benchSwarm is a run in a mount namespace that has none of the mounts of other
// tests: its hosts would hold them, and an umount would not be the end of them.
func benchSwarm(dir string, args ...string) *exec.Cmd {
	all := append([]string{"--mount", "sh", "-c", withoutMounts + `exec "$@"`, "sh", world.root,
		world.binary, "bench", "swarm", "--dir", dir, "--rate", "100mbit"}, args...)
	return exec.Command("unshare", all...)
}

// withoutMounts is a piece of shell that ends, in its mount namespace alone, all
// mounts below its first argument, and shifts that away.
const withoutMounts = `
awk -v r="$1/" 'index($5, r) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r m; do umount -l "$(printf '%b' "$m")"; done
shift
`

// requireNothingLeft requires that no file, process or mount of a run is there.
func requireNothingLeft(t *testing.T, dir string) {
	t.Helper()
	eventually(t, 2*time.Minute, "no process uses what a run left", func() bool {
		procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(t, err)
		for _, p := range procs {
			if line, err := os.ReadFile(p); err == nil && strings.Contains(string(line), dir) {
				return false
			}
		}
		return true
	})
	eventually(t, time.Minute, "nothing is mounted", func() bool {
		mounts, err := os.ReadFile("/proc/self/mounts")
		require.NoError(t, err)
		return !strings.Contains(string(mounts), dir)
	})
}

func TestBenchSwarmMeasuresRealNodes(t *testing.T) {
	t.Parallel()
	dir := benchDir(t)
	r := runCmd(t, benchLimit, benchSwarm(dir, "--receivers", "3", "--size", "16MiB", "--by", "cat", "--peers", "--json"))
	require.Contains(t, []int{0, 1}, r.code, "%s", r)
	var got struct {
		Receivers    int       `json:"receivers"`
		SizeBytes    int64     `json:"size_bytes"`
		Blocks       int64     `json:"blocks"`
		CopySeconds  float64   `json:"copy_seconds"`
		FloorSeconds float64   `json:"floor_seconds"`
		Seconds      []float64 `json:"seconds"`
		SlowestOver  float64   `json:"slowest_over_floor"`
		MedianOver   float64   `json:"median_over_floor"`
		SourceCopies float64   `json:"source_copies"`
		CPUIdle      float64   `json:"cpu_idle"`
		Valid        *bool     `json:"valid"`
		Peers        []struct {
			Name        string  `json:"name"`
			Note        string  `json:"note"`
			SlowestOver float64 `json:"slowest_over_floor"`
		} `json:"peers"`
	}
	require.NoError(t, json.Unmarshal(r.out, &got), "%s", r) // and so the bytes were equal everywhere
	require.NotNil(t, got.Valid)
	require.Equal(t, r.code == 0, *got.Valid)
	require.Equal(t, got.CPUIdle >= 0.25, *got.Valid)
	if !*got.Valid {
		require.Contains(t, r.err, "invalid")
	}
	require.Equal(t, 3, got.Receivers)
	require.EqualValues(t, 16<<20, got.SizeBytes)
	require.EqualValues(t, 8, got.Blocks)
	require.Len(t, got.Seconds, 3)
	require.Greater(t, got.CopySeconds, 1.0, "the links are shaped")
	require.InDelta(t, got.CopySeconds*(1+1.0/8), got.FloorSeconds, 1e-6)
	require.GreaterOrEqual(t, got.SourceCopies, 1.0)
	require.LessOrEqual(t, got.MedianOver, got.SlowestOver)
	// The floor is as slow as the machine was when it was measured: what cannot
	// be faster than the links is seconds.
	const wire = (16 << 20) * 8 / 100e6
	require.Greater(t, got.SlowestOver*got.FloorSeconds, 0.9*wire)
	require.Equal(t, "one HTTP source", got.Peers[0].Name)
	require.Greater(t, got.Peers[0].SlowestOver*got.FloorSeconds, 0.9*3*wire, "three copies over one link")
	for _, p := range got.Peers[1:] {
		require.True(t, (p.Note == "") == (p.SlowestOver > 0), "%+v has figures, or says why not", p)
	}
	requireNothingLeft(t, dir)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestBenchSwarmCleansUpWhateverItEndsBy(t *testing.T) {
	t.Parallel()
	dir := benchDir(t)
	under := func() bool { // the nodes run
		mounts, _ := filepath.Glob(filepath.Join(dir, "p2pfs-lab-*", "r2", "run", "*.sock"))
		return len(mounts) == 1
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		r := launch(t, benchSwarm(dir, "--receivers", "2", "--size", "128MiB")) // which takes long enough to be met
		eventually(t, benchLimit, "the nodes run", under)
		r.signal(sig)
		res := r.finish(t, benchLimit)
		requireNothingLeft(t, dir)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		if sig == syscall.SIGINT {
			require.Equal(t, 130, res.code, "%s", res)
			require.Empty(t, left)
		} else {
			require.Len(t, left, 1, "nobody was there to remove the files")
		}
	}
	// The next run does.
	r := launch(t, benchSwarm(dir, "--receivers", "1", "--size", "1MiB"))
	require.Contains(t, []int{0, 1}, r.finish(t, benchLimit).code)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
