package metatest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Redis is a real redis-server, or a Sentinel, in a process of its own on
// loopback.
type Redis struct {
	t    testing.TB
	name string // of the program
	args []string
	dir  string
	log  string
	addr string
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
}

// StartRedis starts the redis-server of this machine with more settings, as
// "--maxmemory", "1mb". What it answered outlives its process, though not the
// machine: it waits for no disk. The test's end kills it.
func StartRedis(t testing.TB, settings ...string) *Redis {
	t.Helper()
	dir := t.TempDir()
	return startRedis(t, "redis-server", dir, freeAddr, func(port string) []string {
		return append([]string{
			"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--loglevel", "warning", "--save", "",
			"--appendonly", "yes", "--appendfsync", "no", "--repl-diskless-sync-delay", "0",
		}, settings...)
	})
}

// startRedis starts a server on an address of pick, with what args says.
func startRedis(t testing.TB, name, dir string, pick func(testing.TB) string, args func(port string) []string) *Redis {
	t.Helper()
	r := &Redis{t: t, name: name, dir: dir, log: filepath.Join(dir, "log")}
	for try := 0; ; try++ {
		r.addr = pick(t)
		_, port, err := net.SplitHostPort(r.addr)
		require.NoError(t, err)
		r.args = args(port)
		if r.start() { // another program may have taken a port meanwhile
			break
		}
		require.Less(t, try, 5, "%s does not start: %s", name, r.output())
	}
	t.Cleanup(r.Kill)
	return r
}

func (r *Redis) output() string {
	b, _ := os.ReadFile(r.log)
	return string(b)
}

// start reports whether the server came up.
func (r *Redis) start() bool {
	r.t.Helper()
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(r.t, err)
	defer log.Close()
	r.cmd = exec.Command(r.name, r.args...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(r.t, r.cmd.Start(), "the packages redis-server and redis-sentinel must be installed")
	r.gone = make(chan struct{})
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait()
		close(gone)
	}(r.cmd, r.gone)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.addr); err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-r.gone:
			return false
		case <-ctx.Done():
			r.Kill()
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Addr returns the server's host:port.
func (r *Redis) Addr() string { return r.addr }

// URL returns the store's URL with a prefix.
func (r *Redis) URL(prefix string) string { return fmt.Sprintf("redis://%s/0/%s", r.addr, prefix) }

// Kill ends the server at once, as SIGKILL does. Its data stays.
func (r *Redis) Kill() {
	_ = r.cmd.Process.Kill()
	<-r.gone
}

// Restart starts a killed server again, on its data and its port.
func (r *Redis) Restart() {
	r.t.Helper()
	require.True(r.t, r.start(), "%s does not start again: %s", r.name, r.output())
}

// Wipe removes the data of a killed server.
func (r *Redis) Wipe() {
	require.NoError(r.t, os.RemoveAll(filepath.Join(r.dir, "appendonlydir")))
	require.NoError(r.t, os.RemoveAll(filepath.Join(r.dir, "dump.rdb")))
}

// Pause stops the server where it is: connections stay, nothing answers.
func (r *Redis) Pause() { pause(r.t, r.cmd.Process) }

// Resume lets a paused server go on.
func (r *Redis) Resume() { require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGCONT)) }
