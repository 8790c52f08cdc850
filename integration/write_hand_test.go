package integration

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hand is a process that works on files step by step, as a test tells it.
type hand struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
	run   *running
}

func newHand(t *testing.T) *hand {
	t.Helper()
	cmd := exec.Command(world.python, "testdata/hand.py")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, w := io.Pipe()
	cmd.Stdout = w
	h := &hand{t: t, in: in, lines: make(chan string), run: launch(t, cmd)}
	go func() {
		defer close(h.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			h.lines <- s.Text()
		}
	}()
	go func() {
		<-h.run.ended
		w.Close()
	}()
	t.Cleanup(func() {
		in.Close()
		go func() {
			for range h.lines { // whoever reads it has gone
			}
		}()
	})
	return h
}

// does tells the hand to do something and returns its answer.
func (h *hand) does(format string, args ...any) string {
	h.t.Helper()
	line := fmt.Sprintf(format, args...)
	_, err := io.WriteString(h.in, line+"\n")
	require.NoError(h.t, err, line)
	select {
	case answer, ok := <-h.lines:
		require.True(h.t, ok, "%s: the process ended: %s", line, h.run.errOut)
		return answer
	case <-time.After(commandLimit):
		require.Fail(h.t, "no answer", line)
		return ""
	}
}

// must is does for what has to succeed.
func (h *hand) must(format string, args ...any) {
	h.t.Helper()
	require.Equal(h.t, "ok", h.does(format, args...), format, args)
}

// lines of a file, read by another process.
func text(t testing.TB, path string) string {
	t.Helper()
	return must(t, "cat", path)
}

// absent reports whether a name does not exist, as another process sees it.
func absent(t testing.TB, path string) bool {
	t.Helper()
	r := run(t, "stat", "-c", "%s", path)
	if r.code != 0 {
		require.Contains(t, r.err, "No such file or directory")
	}
	return r.code != 0
}

// soonAbsent waits until a name that was looked at here does not exist any more:
// a stat may show the old state until the news has come (N1).
func soonAbsent(t testing.TB, path string) {
	t.Helper()
	eventually(t, commandLimit, path+" is no more", func() bool { return absent(t, path) })
}

// soonText waits until a file has some content.
func soonText(t testing.TB, want, path string) {
	t.Helper()
	eventually(t, commandLimit, path+" is "+want, func() bool {
		r := run(t, "cat", path)
		return r.code == 0 && string(r.out) == want
	})
}

// readBack reads a whole file of which the store, or a node that holds it, came
// back a moment ago: until it is found again a read may fail (R3), but what it
// gives is for the caller to judge.
func readBack(t testing.TB, path string) string {
	t.Helper()
	return oncePossible(t, "cat", path)
}

// oncePossible is what a command says as soon as what it reads is no longer
// refused with EIO.
func oncePossible(t testing.TB, command ...string) string {
	t.Helper()
	var r result
	eventually(t, commandLimit, strings.Join(command, " ")+" succeeds", func() bool {
		if r = run(t, command[0], command[1:]...); r.code != 0 {
			require.Contains(t, r.err, "Input/output error")
		}
		return r.code == 0
	})
	return string(r.out)
}

func size(t testing.TB, path string) string {
	t.Helper()
	return strings.TrimSpace(must(t, "stat", "-c", "%s", path))
}

// repeat is what the hand's fill writes.
func repeat(n int) string { return strings.Repeat("x", n) }

// unpublished is one file that recover lists.
type unpublished struct {
	ID     string `json:"id"`
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

func (n *node) unpublished() []unpublished {
	n.t.Helper()
	var out struct {
		Files []unpublished `json:"files"`
	}
	n.json(&out, "recover")
	return out.Files
}

// shell runs a script with "$1", "$2" and so on.
func shell(script string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
}
