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

// Etcd is a real etcd server in a process of its own, on loopback.
type Etcd struct {
	t    *testing.T
	args []string
	log  string
	addr string
	data string
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
}

// StartEtcd starts the etcd of this machine with default limits. The test's
// end kills it.
func StartEtcd(t *testing.T) *Etcd {
	t.Helper()
	dir := t.TempDir()
	e := &Etcd{t: t, log: filepath.Join(dir, "log"), data: filepath.Join(dir, "data")}
	for try := 0; ; try++ {
		e.addr = freeAddr(t)
		peer := "http://" + freeAddr(t)
		e.args = []string{
			"--data-dir", e.data, "--name", "test",
			"--listen-client-urls", e.clientURL(), "--advertise-client-urls", e.clientURL(),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "test=" + peer,
			"--log-level", "error",
		}
		if e.start() { // another program may have taken a port meanwhile
			break
		}
		require.Less(t, try, 5, "etcd does not start: %s", e.output())
		require.NoError(t, os.RemoveAll(e.data))
	}
	t.Cleanup(e.Kill)
	return e
}

func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func (e *Etcd) clientURL() string { return "http://" + e.addr }

func (e *Etcd) output() string {
	b, _ := os.ReadFile(e.log)
	return string(b)
}

// start reports whether the server came up.
func (e *Etcd) start() bool {
	e.t.Helper()
	log, err := os.OpenFile(e.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(e.t, err)
	defer log.Close()
	e.cmd = exec.Command("etcd", e.args...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	require.NoError(e.t, e.cmd.Start(), "the package etcd-server must be installed")
	e.gone = make(chan struct{})
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait()
		close(gone)
	}(e.cmd, e.gone)
	ctx, cancel := context.WithTimeout(e.t.Context(), 30*time.Second)
	defer cancel()
	for {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", e.addr); err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-e.gone:
			return false
		case <-ctx.Done():
			e.Kill()
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// URL returns the store's URL with a prefix.
func (e *Etcd) URL(prefix string) string { return fmt.Sprintf("etcd://%s/%s", e.addr, prefix) }

// Kill ends the server at once, as SIGKILL does. Its data stays.
func (e *Etcd) Kill() {
	_ = e.cmd.Process.Kill()
	<-e.gone
}

// Restart starts a killed server again, on its data and its port.
func (e *Etcd) Restart() {
	e.t.Helper()
	require.True(e.t, e.start(), "etcd does not start again: %s", e.output())
}

// Wipe removes the data of a killed server.
func (e *Etcd) Wipe() { require.NoError(e.t, os.RemoveAll(e.data)) }

// Pause stops the server where it is: connections stay, nothing answers.
func (e *Etcd) Pause() { pause(e.t, e.cmd.Process) }

// Resume lets a paused server go on.
func (e *Etcd) Resume() { require.NoError(e.t, e.cmd.Process.Signal(syscall.SIGCONT)) }
