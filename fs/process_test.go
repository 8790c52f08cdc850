package fs

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is a child that answers one JSON line for each it is sent.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	once sync.Once
	gone chan struct{} // closed when it has ended
}

// spawn starts this test binary in a role.
func spawn(t *testing.T, role string) *process {
	t.Helper()
	return spawnBy(t, role, "/proc/self/exe")
}

// spawnBy starts this test binary in a role by a command that ends in it.
func spawnBy(t *testing.T, role string, command ...string) *process {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{t: t, cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20), gone: make(chan struct{})}
	t.Cleanup(p.kill)
	return p
}

// kill ends the process by SIGKILL and reaps it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.reap()
}

// reap waits for the process to end.
func (p *process) reap() {
	p.once.Do(func() {
		_ = p.cmd.Wait()
		close(p.gone)
	})
	<-p.gone
}

// try sends a request and decodes the answer, which is an error when it has a
// non-empty Reason.
func (p *process) try(request, answer any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return err
	}
	if line, err = p.out.ReadBytes('\n'); err != nil {
		return err
	}
	var failed failure
	if err := json.Unmarshal(line, &failed); err != nil {
		return fmt.Errorf("%w: %q", err, line)
	}
	if failed.Reason != "" {
		return &failed
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(line, answer)
}

// failure is an answer that is an error.
type failure struct {
	Reason string
	Errno  syscall.Errno
}

// Error implements error.
func (f *failure) Error() string { return f.Reason }

// Is compares by errno.
func (f *failure) Is(target error) bool { return target == f.Errno && f.Errno != 0 }

// loop answers requests from stdin until it closes.
func loop[R any](serve func(R) (any, error)) error {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var r R
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return err
		}
		answer, err := serve(r)
		if err != nil {
			f := failure{Reason: err.Error()}
			errors.As(err, &f.Errno)
			answer = f
		}
		if answer == nil {
			answer = struct{}{}
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return in.Err()
}

// content fills buf with what the object of a seed has at off. No two aligned
// words of any two objects are alike.
func content(buf []byte, seed uint64, off int64) {
	var word [8]byte
	for i := 0; i < len(buf); {
		at := off + int64(i)
		x := seed*0x9e3779b97f4a7c15 + uint64(at/8)
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(word[:], x^x>>31)
		i += copy(buf[i:], word[at%8:])
	}
}

// eventually polls for a condition. The bound is for machines under load.
func eventually(t *testing.T, ok func() bool, msg string) {
	t.Helper()
	require.Eventually(t, ok, 3*time.Minute, 5*time.Millisecond, msg)
}

func itoa(n int) string { return strconv.Itoa(n) }

func newTestPassthrough() *passthrough {
	return &passthrough{
		log: slog.New(slog.DiscardHandler), state: PassthroughOn,
		devices: map[uint64]error{}, said: map[string]bool{},
	}
}
