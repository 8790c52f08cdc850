package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"github.com/stretchr/testify/require"
)

const suiteLimit = 20 * time.Minute

// Suites that others wrote, on a mount of two nodes with small blocks. On an
// ordinary disk (see plainEnv) all of each passes.

func TestPosixtest(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, _ := p.mkdir(t, "posixtest")
	r := runCmd(t, suiteLimit, child("posixtest", a))
	got := outcomes{}
	line := regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\w+) `)
	out := string(r.out)
	found := line.FindAllStringSubmatchIndex(out, -1)
	for i, m := range found {
		end := len(out)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		got[out[m[4]:m[5]]] = outcome{strings.ToLower(out[m[2]:m[3]]), out[m[0]:end]}
	}
	require.Len(t, got, len(posixtest.All), "%s", r)
	judge(t, "posixtest", got)
	p.healthy(t)
}

func TestPjdfstest(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, _ := p.mkdir(t, "pjdfstest")
	config, err := filepath.Abs("testdata/pjdfstest.toml")
	require.NoError(t, err)
	args := []string{"-c", config, "-p", a}
	if !p.plain() { // what is renamed or linked to another file system
		args = append(args, "-s", p.src)
	}
	cmd := exec.Command(suiteBinary(t, "pjdfstest"), args...)
	cmd.Env = append(os.Environ(), "RUST_BACKTRACE=0")
	r := runCmd(t, suiteLimit, cmd)
	got := outcomes{}
	var last string
	line := regexp.MustCompile(`^([\w:]+)\s+(ok|FAILED|skipped)$`)
	for _, l := range strings.Split(string(r.out), "\n") {
		if m := line.FindStringSubmatch(l); m != nil {
			last = m[1]
			got[last] = outcome{state: map[string]string{"ok": "pass", "FAILED": "fail", "skipped": "skip"}[m[2]]}
		} else if o, ok := got[last]; ok {
			o.detail += l + "\n"
			got[last] = o
		}
	}
	require.Contains(t, string(r.out), fmt.Sprintf("%d total", len(got)), "%s", r)
	judge(t, "pjdfstest", got)
	p.healthy(t)
}

func TestFsx(t *testing.T) {
	t.Parallel()
	for i, mode := range passthroughModes { // the same each time; make test-long does others
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			fsx(t, 5_000, uint64(i+1), mode)
		})
	}
}

// fsx does a number of random operations on one file. It prints its seed; with
// that, -S repeats them.
func fsx(t *testing.T, operations int, seed uint64, passthrough string) {
	t.Helper()
	p := newPair(t, "--passthrough="+passthrough)
	a, b := p.mkdir(t, "fsx")
	config, err := filepath.Abs("testdata/fsx.toml")
	require.NoError(t, err)
	seed &= 1<<31 - 1
	report(t, "fsx: %d operations, seed %d, passthrough %s", operations, seed, passthrough)
	r := runCmd(t, suiteLimit, exec.Command(suiteBinary(t, "fsx"), "-f", config, "-N", itoa(operations), "-S", itoa(int64(seed)), "-P", p.src, a+"/f"))
	require.Zero(t, r.code, "%s", r)
	require.Contains(t, r.String(), "A-OK")
	require.Equal(t, digest(t, a+"/f"), digest(t, b+"/f"), "the other node has something else")
	p.healthy(t)
}

// stressors of stress-ng that work on files, with what keeps their cleaning up
// within the time.
var stressors = []string{
	"access", "chdir", "chmod", "dentry", "dir", "dirdeep", "dirmany", "fallocate", "fcntl", "filename", "flock",
	"fstat", "getdent", "hdd", "iomix", "link", "lockf", "mmap", "open", "readahead", "rename", "seek", "symlink",
	"touch", "utime", "xattr",
}

var stressorBounds = []string{
	"--chdir-dirs", "64", "--dentries", "256", "--dir-dirs", "64", "--dirdeep-inodes", "256",
	"--fallocate-bytes", "16M", "--hdd-bytes", "16M", "--iomix-bytes", "16M", "--readahead-bytes", "16M", "--seek-size", "16M",
	"--open-max", "512", "--mmap-file", "--mmap-bytes", "16M",
}

func TestStressNG(t *testing.T) { t.Parallel(); stressNG(t, 10*time.Second) }

// stressNG runs all stressors at once for so long.
func stressNG(t *testing.T, d time.Duration) {
	t.Helper()
	p := newPair(t)
	a, b := p.mkdir(t, "stress")
	args := []string{"--temp-path", a, "--timeout", itoa(int64(d.Seconds())) + "s", "--verify", "--metrics-brief"}
	for _, s := range stressors {
		args = append(args, "--"+s, "1")
	}
	r := runCmd(t, suiteLimit, exec.Command("stress-ng", append(args, stressorBounds...)...))
	all := r.String()
	got := outcomes{}
	ran := regexp.MustCompile(`metrc: \[\d+\] (\w+) +(\d+) `)
	for _, m := range ran.FindAllStringSubmatch(all, -1) {
		if slices.Contains(stressors, m[1]) {
			got[m[1]] = outcome{state: "pass", detail: m[0]}
		}
	}
	wrong := regexp.MustCompile(`(?m)^.*(?:fail|error|warn|skipp)\w*: *\[\d+\] (?:stress-ng-)?(\w+).*$`)
	for _, m := range wrong.FindAllStringSubmatch(all, -1) {
		if o := got[m[1]]; slices.Contains(stressors, m[1]) {
			got[m[1]] = outcome{state: "fail", detail: o.detail + m[0] + "\n"}
		}
	}
	skipped := regexp.MustCompile(`(?m)^.*\] (\w+) stressor will be skipped.*$`)
	for _, m := range skipped.FindAllStringSubmatch(all, -1) {
		got[m[1]] = outcome{state: "skip", detail: m[0]}
	}
	require.Len(t, got, len(stressors), "%s", all)
	judge(t, "stress-ng", got)
	require.Empty(t, must(t, "ls", "-A", b), "something is left")
	p.healthy(t)
}

// healthy requires that the nodes are well after all that.
func (p pair) healthy(t *testing.T) {
	t.Helper()
	if p.plain() {
		return
	}
	for _, n := range []*node{p.na, p.nb} {
		n.must("status")
		require.NotContains(t, string(content(t, n.logPath())), "panic", "in the log of node %s", n.name)
	}
}
