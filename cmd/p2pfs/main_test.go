package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/node"
	"github.com/p2pfs/p2pfs/node/running"
)

// envFake makes this test binary be the program, with a node that does what
// the value says instead of a real one.
const envFake = "P2PFS_TEST_FAKE"

func TestMain(m *testing.M) {
	if how := os.Getenv(envFake); how != "" {
		a := &app{args: os.Args[1:], out: os.Stdout, err: os.Stderr, lookup: os.LookupEnv, start: fakeStart(how)}
		os.Exit(a.run(context.Background()))
	}
	leaktest.Main(m)
}

// fakeStart starts a node without a mount.
func fakeStart(how string) func(context.Context, node.Config) (daemon, error) {
	return func(ctx context.Context, cfg node.Config) (daemon, error) {
		switch how {
		case "refuses":
			return nil, errors.New("cache /c is in use by pid 7")
		case "crashes":
			panic("a bug")
		case "hangs":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return startFake(cfg, how)
	}
}

// result is what a run of the program left.
type result struct {
	out, err string
	code     int
}

// program returns the program as a process of its own.
func program(t *testing.T, fake string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), envFake+"="+fake), env...)
	return cmd
}

func runProgram(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() })
	defer kill.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{out.String(), errb.String(), cmd.ProcessState.ExitCode()}
}

// runtimeDir gives the test a runtime directory of its own, short enough for
// sockets.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p2r")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// inProcess runs the program in the test's process.
func inProcess(t *testing.T, args ...string) result {
	t.Helper()
	var out, errb bytes.Buffer
	a := &app{args: args, out: &out, err: &errb, lookup: os.LookupEnv, start: fakeStart("refuses")}
	code := a.run(t.Context())
	return result{out.String(), errb.String(), code}
}

// at publishes the test's process as a node with this service.
func at(t *testing.T, c *fakeControl) string {
	t.Helper()
	dir := runtimeDir(t)
	t.Setenv(running.EnvDir, dir)
	t.Setenv(running.EnvNode, "")
	point := filepath.Join(dir, "mnt")
	require.NoError(t, os.Mkdir(point, 0o755))
	cache := filepath.Join(dir, "cache")
	require.NoError(t, os.Mkdir(cache, 0o755))
	socket, err := running.SocketPath("fake")
	require.NoError(t, err)
	stop := c.serve(t, socket)
	t.Cleanup(stop)
	pub, err := running.Publish(running.Info{Node: "00ff", Name: "fake", Mountpoint: point, CacheDirs: []string{cache}, Socket: socket})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	return point
}

// alive reports whether a process runs; one that nobody has reaped does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(b, []byte(") Z "))
}
