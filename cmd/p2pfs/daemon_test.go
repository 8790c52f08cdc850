package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/node/running"
)

// place is where a fake node lives.
type place struct {
	dir, mnt, cache string
	env             []string
}

func newPlace(t *testing.T) place {
	dir := runtimeDir(t)
	p := place{dir: dir, mnt: filepath.Join(dir, "mnt"), cache: filepath.Join(dir, "cache")}
	require.NoError(t, os.Mkdir(p.mnt, 0o755))
	require.NoError(t, os.Mkdir(p.cache, 0o755))
	p.env = []string{running.EnvDir + "=" + filepath.Join(dir, "run"), running.EnvNode + "="}
	return p
}

func (p place) mount(more ...string) []string {
	return append([]string{"mount", p.mnt, "--cache-dir", p.cache, "--name", "n"}, more...)
}

func TestForegroundPrintsTheClusterAndEndsOnSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			cmd := program(t, "works", p.env, p.mount("--meta-listen", "127.0.0.1:99")...)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			log, err := os.Create(filepath.Join(p.dir, "log"))
			require.NoError(t, err)
			defer log.Close()
			cmd.Stderr = log
			require.NoError(t, cmd.Start())
			defer cmd.Process.Kill()
			said := readUntil(t, out, "other nodes join")
			require.Contains(t, said, p.mnt+" is mounted: node n")
			require.Contains(t, said, "new cluster")
			require.Contains(t, said, "other nodes join with: p2pfs mount etcd://127.0.0.1:99 MOUNTPOINT")

			r := runProgram(t, program(t, "none", p.env, "status"))
			require.Equal(t, exitOK, r.code, r.err)
			r = runProgram(t, program(t, "none", append(p.env, running.EnvDir+"=/nonexistent"), "status", "--node", p.cache))
			require.Equal(t, exitOK, r.code, r.err)

			require.NoError(t, cmd.Process.Signal(sig))
			require.NoError(t, cmd.Wait())
			b, err := os.ReadFile(log.Name())
			require.NoError(t, err)
			require.Contains(t, string(b), "a warning")
			require.Equal(t, exitNoNode, runProgram(t, program(t, "none", p.env, "status")).code)
			left, err := filepath.Glob(filepath.Join(p.dir, "run", "[^.]*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// readUntil reads until a line holds the words; the rest is discarded.
func readUntil(t *testing.T, r io.Reader, words string) string {
	t.Helper()
	var said strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(said.String(), words) || !strings.HasSuffix(said.String(), "\n") {
		n, err := r.Read(buf)
		said.Write(buf[:n])
		require.NoError(t, err, said.String())
	}
	return said.String()
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd := program(t, "stuck", p.env, p.mount()...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	log := filepath.Join(p.dir, "log")
	f, err := os.Create(log)
	require.NoError(t, err)
	defer f.Close()
	cmd.Stderr = f
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	readUntil(t, out, "other nodes join")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(b), "a second signal ends")
	}, 2*time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Equal(t, exitFailed, cmd.ProcessState.ExitCode())
}

func TestDaemonReturnsWhenReadyAndUmountEndsIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := runProgram(t, program(t, "works", p.env, p.mount("-d", "--json")...))
	require.Equal(t, exitOK, r.code, r.err)
	var ready readyNode
	require.NoError(t, json.Unmarshal([]byte(r.out), &ready))
	t.Cleanup(func() { syscall.Kill(ready.PID, syscall.SIGKILL) })
	require.True(t, alive(ready.PID))
	require.Equal(t, filepath.Join(p.cache, "p2pfs.log"), ready.LogFile)
	require.True(t, ready.NewCluster)
	wd, err := os.Readlink("/proc/" + strconv.Itoa(ready.PID) + "/cwd")
	require.NoError(t, err)
	require.Equal(t, "/", wd, "the daemon keeps a directory busy")
	sid, err := syscall.Getpgid(ready.PID)
	require.NoError(t, err)
	require.Equal(t, ready.PID, sid, "not in a session of its own")

	// A mount on the same mountpoint finds its node by the path.
	r = runProgram(t, program(t, "none", p.env, "umount", p.mnt))
	require.Equal(t, exitOK, r.code, r.err)
	require.Empty(t, r.out)
	require.False(t, alive(ready.PID), "umount returned before the daemon had ended")
	b, err := os.ReadFile(ready.LogFile)
	require.NoError(t, err)
	require.Contains(t, string(b), "a warning")
}

func TestDaemonTellsWhyItDidNotStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fake string
		args []string
		code int
		says []string
	}{
		{"refuses", nil, exitFailed, []string{"p2pfs: cache /c is in use by pid 7"}},
		{"crashes", nil, exitFailed, []string{"ended before it was ready", "panic: a bug"}},
		{"works", []string{"--prefetch", "all"}, exitUsage, []string{"--prefetch", "p2pfs mount --help"}},
		{"works", []string{"--log-file", "/nonexistent/x"}, exitFailed, []string{"--log-file", "/nonexistent/x"}},
	} {
		t.Run(c.fake+strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			r := runProgram(t, program(t, c.fake, p.env, p.mount(append(c.args, "-d")...)...))
			require.Equal(t, c.code, r.code, r.err)
			require.Empty(t, r.out)
			for _, s := range c.says {
				require.Contains(t, r.err, s)
			}
		})
	}
}

func TestDaemonLogInsideTheMountpointIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := runProgram(t, program(t, "works", p.env, "mount", "-d", p.mnt, "--cache-dir", filepath.Join(p.mnt, "cache")))
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "cache")
	left, err := os.ReadDir(p.mnt)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestInterruptWhileTheDaemonStartsEndsIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	cmd := program(t, "hangs", p.env, p.mount("-d")...)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	child := 0
	t.Cleanup(func() {
		if child != 0 {
			syscall.Kill(child, syscall.SIGKILL)
		}
	})
	require.Eventually(t, func() bool {
		if child = childOf(cmd.Process.Pid); child == 0 {
			return false
		}
		// It has taken over its signals once it has its runtime directory.
		status, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/status")
		return err == nil && catches(string(status), syscall.SIGTERM) && exists(filepath.Join(p.dir, "run"))
	}, 2*time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode())
	require.False(t, alive(child))
}

// childOf returns a child of a process, 0 if there is none.
func childOf(pid int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if f := strings.Fields(string(b)); err == nil && len(f) > 0 {
			child, _ := strconv.Atoi(f[0])
			return child
		}
	}
	return 0
}

// catches reads SigCgt of /proc/<pid>/status.
func catches(status string, sig syscall.Signal) bool {
	_, rest, ok := strings.Cut(status, "SigCgt:\t")
	if !ok {
		return false
	}
	mask, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	return err == nil && mask&(1<<(sig-1)) != 0
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
