package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spawner starts every child from one thread that lives as long as the
// process: the kernel sends a child its death signal when the thread that made
// it ends, which for an ordinary goroutine is any time.
type spawner struct{ work chan func() }

func newSpawner() *spawner {
	s := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", rootEnv+"="+world.root)
	err := make(chan error)
	s.work <- func() { err <- cmd.Start() }
	return <-err
}

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has been waited for
	err   error         // of Wait; valid once ended is closed
}

func spawn(cmd *exec.Cmd) (*process, error) {
	if err := world.spawner.start(cmd); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// spawnPiped starts a command whose output is read from out, which its reader
// closes. A pipe of our own: Wait closes those of the command as it likes.
func spawnPiped(t testing.TB, cmd *exec.Cmd) (p *process, out *os.File) {
	t.Helper()
	out, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	p, err = spawn(cmd)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return p, out
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(sig syscall.Signal) {
	if p.alive() {
		_ = p.cmd.Process.Signal(sig)
	}
}

// wait reports whether the process ended within d.
func (p *process) wait(d time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// kill ends the process and all of its group, without asking.
func (p *process) kill() {
	_ = syscall.Kill(-p.pid(), syscall.SIGCONT)
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	p.wait(time.Minute)
}

// result is what a command that has ended left.
type result struct {
	out  []byte
	err  string
	code int // -1: killed by a signal, or by us at the time limit
	took time.Duration
}

func (r result) String() string { return strings.TrimSpace(string(r.out) + "\n" + r.err) }

// commandLimit is for what hangs, and for what comes by itself: not for speed.
const commandLimit = 4 * time.Minute

// run runs a command to its end, commandLimit at most.
func run(t testing.TB, name string, args ...string) result {
	t.Helper()
	return runCmd(t, commandLimit, exec.Command(name, args...))
}

// must is run for commands that have to succeed; it returns their output.
func must(t testing.TB, name string, args ...string) string {
	t.Helper()
	r := run(t, name, args...)
	require.Zero(t, r.code, "%s %q: %s", name, args, r)
	return string(r.out)
}

func runCmd(t testing.TB, limit time.Duration, cmd *exec.Cmd) result {
	t.Helper()
	return launch(t, cmd).finish(t, limit)
}

// running is a command that goes on in the background.
type running struct {
	*process
	began       time.Time
	out, errOut *bytes.Buffer
}

func launch(t testing.TB, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{began: time.Now(), out: new(bytes.Buffer), errOut: new(bytes.Buffer)}
	if cmd.Stdout == nil {
		cmd.Stdout = r.out
	}
	cmd.Stderr = r.errOut
	cmd.WaitDelay = 30 * time.Second // for what is still in its pipes
	p, err := spawn(cmd)
	require.NoError(t, err, "start %q", cmd.Args)
	r.process = p
	t.Cleanup(func() {
		if p.alive() {
			p.kill()
		}
	})
	return r
}

// finish waits for the end; a command that goes on past the limit is killed
// and fails the test.
func (r *running) finish(t testing.TB, limit time.Duration) result {
	t.Helper()
	if !r.wait(limit) {
		stacks, _ := os.ReadFile(filepath.Join("/proc", itoa(r.pid()), "stack"))
		r.kill()
		require.Failf(t, "a command does not end", "%q after %v; kernel stack:\n%s", r.cmd.Args, limit, stacks)
	}
	res := result{out: r.out.Bytes(), err: r.errOut.String(), took: time.Since(r.began)}
	var exit *exec.ExitError
	switch {
	case errors.As(r.err, &exit):
		res.code = exit.ExitCode()
	case r.err != nil:
		res.code = -1
		res.err += r.err.Error()
	}
	return res
}

// rootEnv marks every process of this run, so that the reaper finds those that
// made themselves independent.
const rootEnv = "P2PFS_TEST_ROOT"

// reaper is a shell in a session of its own. It waits until our end of its
// standard input closes, which happens however this process ends, and then
// clears what is left: marked processes, mounts and files below the root.
type reaper struct {
	cmd   *exec.Cmd
	input io.Closer
}

const reaperScript = `
cat >/dev/null
for p in /proc/[0-9]*; do
	[ "${p#/proc/}" != $$ ] && tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qxF "` + rootEnv + `=$1" && kill -CONT "${p#/proc/}" && kill -KILL "${p#/proc/}"
done 2>/dev/null
for i in 1 2 3; do
	awk -v r="$1/" 'index($5, r) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r m; do umount -l "$(printf '%b' "$m")"; done
done 2>/dev/null
chattr -R -i "$1" 2>/dev/null
rm -rf --one-file-system "$1"`

func startReaper(root string) (*reaper, error) {
	cmd := exec.Command("sh", "-c", reaperScript, "reaper", root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &reaper{cmd, input}, cmd.Start()
}

func (r *reaper) finish() error {
	_ = r.input.Close()
	return r.cmd.Wait()
}

// eventually polls until ok holds. It looks once more when the time is over: a
// machine that stood still was not looked at meanwhile.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if ok() {
				return
			}
			require.Failf(t, "not in time", "%s within %v", what, limit)
		}
	}
}
