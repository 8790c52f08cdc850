package metatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// server is a real server of this machine in a process of its own on loopback,
// which ends with the test.
type server struct {
	t    testing.TB
	name string // of the program
	pkg  string // Debian package that has it
	args []string
	log  string
	addr string // host:port
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
}

// Addr returns the server's host:port.
func (s *server) Addr() string { return s.addr }

// PID returns the id of its process.
func (s *server) PID() int { return s.cmd.Process.Pid }

// newServer returns a server that is not started, and logs into dir.
func newServer(t testing.TB, name, pkg, dir string) *server {
	return &server{t: t, name: name, pkg: pkg, log: filepath.Join(dir, "log")}
}

// begin starts the server on what next sets it to; again, a few times, if it
// does not come up: another test may have taken a port meanwhile.
func (s *server) begin(next func()) {
	s.t.Helper()
	for try := 0; ; try++ {
		next()
		if s.start() {
			break
		}
		require.Less(s.t, try, 5, "%s does not start: %s", s.name, s.output())
	}
	s.t.Cleanup(s.Kill)
}

// FreeAddr returns a host:port on loopback that nobody listens on. It is none of
// those that the kernel gives to whoever asks for any port, so that it is still
// free when a server starts there, and when a killed one starts there again.
func FreeAddr(t testing.TB) string { return freeAddrs(t, 1)[0] }

// freeAddrs returns so many different ones.
func freeAddrs(t testing.TB, n int) []string {
	t.Helper()
	var addrs []string
	for try := 0; len(addrs) < n; try++ {
		require.Less(t, try, 1000, "there is no free port")
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			defer l.Close() // not before the last one is found
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

func (s *server) output() string {
	b, _ := os.ReadFile(s.log)
	return string(b)
}

// start reports whether the server came up.
func (s *server) start() bool {
	s.t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(s.t, err)
	defer log.Close()
	s.cmd = exec.Command(s.name, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(s.t, s.cmd.Start(), "the package %s must be installed", s.pkg)
	s.gone = make(chan struct{})
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait()
		close(gone)
	}(s.cmd, s.gone)
	// The test's own context has ended where cleaning up starts a server again.
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	for {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr); err == nil {
			_ = conn.Close()
			if s.listens() {
				return true
			}
		}
		select {
		case <-s.gone:
			return false
		case <-ctx.Done():
			s.Kill()
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// listens reports whether it is the server that listens on its port, and not
// somebody else who has it.
func (s *server) listens() bool {
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(s.t, err)
	n, err := strconv.Atoi(port)
	require.NoError(s.t, err)
	own := map[string]bool{}
	dir := fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil {
			own[to] = true
		}
	}
	table, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(table)) { // sl local remote state tx:rx tr:when retrnsmt uid timeout inode
		f := strings.Fields(line)
		if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && own["socket:["+f[9]+"]"] {
			return true
		}
	}
	return false
}

// Kill ends the server at once, as SIGKILL does. Its data stays.
func (s *server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.gone
}

// Restart starts a killed server again, on its data and its port.
func (s *server) Restart() {
	s.t.Helper()
	require.True(s.t, s.start(), "%s does not start again: %s", s.name, s.output())
}

// Pause stops the server where it is: connections stay, nothing answers. It
// returns when all of its threads have stopped: until then some may answer.
func (s *server) Pause() {
	s.t.Helper()
	p := s.cmd.Process
	require.NoError(s.t, p.Signal(syscall.SIGSTOP))
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED, nil)
		if err != unix.EINTR {
			require.NoError(s.t, err)
			return
		}
	}
}

// Resume lets a paused server go on.
func (s *server) Resume() { require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGCONT)) }
