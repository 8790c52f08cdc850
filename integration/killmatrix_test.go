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

// publishing is one way to publish, disturbed at every step.
type publishing struct {
	name string
	how  string // of writerMain
	old  int64  // size of what the name stands for before; 0: nothing
	size int64  // of what is written
	held bool   // the old bytes are on the peer only
}

var publishings = []publishing{
	{name: "a new small file", how: "new", size: 5000},
	{name: "a new file of some chunks", how: "new", size: 2*smallChunk + 77},
	{name: "over a published file", how: "over", old: smallBlock + 5, size: smallChunk + 1},
	{name: "appended to what a peer holds", how: "append", old: smallChunk + 100, size: 9000, held: true},
}

// victims are the processes that can die in the middle of it.
const (
	victimDaemon = "daemon"
	victimWriter = "writer"
	victimPeer   = "peer"
)

// shownAs is what a name may stand for after a fault, by digest.
type shownAs struct {
	before, after string // "": nothing
}

// killMatrix kills the victim at each step that the writer's daemon takes
// until a publish ends undisturbed.
type killMatrix struct {
	t      *testing.T
	p      publishing
	victim string
	a, b   *node
	again  func() // brings a back after its daemon was killed; nil: it is started again
	points int
	steps  []string // that the daemon took, of the last run
	whole  int      // how often the name was the new one afterwards
	wrong  []string // what must not be
}

func (m *killMatrix) bad(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// run kills at every stride-th step, from the first on.
func (m *killMatrix) run(stride int) {
	t := m.t
	t.Helper()
	for n := 1; m.at(n); n += stride {
		if len(m.wrong) > 20 {
			break
		}
	}
	t.Logf("report: %s: the %s killed at %d of %d steps; %d times the new file was there, else what was before", m.p.name, m.victim, m.points, len(m.steps), m.whole)
	t.Logf("the steps:\n  %s", strings.Join(m.steps, "\n  "))
	require.GreaterOrEqual(t, m.points, 10/stride, "the fault came nowhere: %q", m.steps)
	if len(m.wrong) > 0 {
		t.Fatalf("%d times it was not as it must be:\n%s", len(m.wrong), strings.Join(m.wrong, "\n"))
	}
}

// at makes one publish with the fault at the n-th step; false: it ended before.
func (m *killMatrix) at(n int) bool {
	t := m.t
	name := fmt.Sprintf("f%d", n)
	shown := m.prepare(name, n)
	w := m.writer(name, n)
	victim := map[string]*process{victimDaemon: m.a.proc, victimWriter: w.process, victimPeer: m.b.proc}[m.victim]
	s := m.stopper(victim, n)
	_, err := io.WriteString(w.in, "go\n")
	require.NoError(t, err)
	require.True(t, w.wait(3*time.Minute), "the writer hangs")
	fired := m.finishStopper(s)
	said := w.said.String()
	if !fired {
		require.Contains(t, said, "closed", "undisturbed: %s", said)
		require.Equal(t, shown.after, digest(t, m.b.path(name)))
		return false
	}
	m.points++
	at := m.steps[len(m.steps)-1]
	where := fmt.Sprintf("%s, the %s killed before step %d (%s); the writer said %q", m.p.name, m.victim, n, at, said)
	switch {
	case m.again != nil:
		m.again()
	case m.victim == victimDaemon:
		m.a.kill()
		m.a.start()
	case m.victim == victimPeer:
		m.b.kill()
		m.b.start()
	}
	m.verify(name, where, said, shown)
	return true
}

// prepare makes what the name stands for before, and says what it may be.
func (m *killMatrix) prepare(name string, n int) shownAs {
	t, c := m.t, m.a.c
	data := make([]byte, m.p.size)
	_, err := randomBytes(uint64(n)).Read(data)
	require.NoError(t, err)
	if m.p.old == 0 {
		return shownAs{after: hexOf(data)}
	}
	src := c.src(name)
	before := writeFile(t, src, m.p.old, uint64(n)+1_000_000)
	must(t, "cp", src, m.b.path(name))
	if m.p.how == "append" {
		data = append(content(t, src), data...)
	}
	require.Equal(t, before, digest(t, m.a.path(name)))
	if m.p.held {
		m.a.must("drop", m.a.path(name))
	}
	return shownAs{before, hexOf(data)}
}

// disturbed is a writer that waits for its start.
type disturbed struct {
	*process
	in   io.WriteCloser
	said *strings.Builder
}

func (m *killMatrix) writer(name string, n int) *disturbed {
	t := m.t
	cmd := child("writer", m.a.path(name), m.p.how, itoa(m.p.size), fmt.Sprint(n))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	p, out := spawnPiped(t, cmd)
	w := &disturbed{&process{cmd: cmd, ended: make(chan struct{})}, in, new(strings.Builder)}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	go func() { // said is complete when it has ended
		_, _ = io.Copy(w.said, lines)
		_ = out.Close()
		<-p.ended
		w.err = p.err
		close(w.ended)
	}()
	t.Cleanup(w.kill)
	return w
}

// watching is a stopper under way.
type watching struct {
	*process
	lines chan string
}

func (m *killMatrix) stopper(victim *process, n int) *watching {
	t := m.t
	cmd := child("stopper", itoa(m.a.proc.pid()), itoa(victim.pid()), itoa(n))
	p, out := spawnPiped(t, cmd)
	t.Cleanup(p.kill)
	s := &watching{p, make(chan string, 10_000)}
	go func() {
		defer out.Close()
		defer close(s.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			s.lines <- in.Text()
		}
	}()
	require.Equal(t, "attached", <-s.lines)
	return s
}

// finishStopper ends the watch and reports whether the victim was killed.
func (m *killMatrix) finishStopper(s *watching) (fired bool) {
	s.kill()
	m.steps = m.steps[:0]
	for line := range s.lines {
		if line == "kill" {
			return true
		}
		m.steps = append(m.steps, line)
	}
	return false
}

// verify looks at both nodes once all run again: the name is what it was or
// the whole new file; what was closed is there (C1), what was written whole
// and is not can be recovered (C2, C3).
func (m *killMatrix) verify(name, where, said string, may shownAs) {
	t := m.t
	if m.victim != victimDaemon { // the last of a file is done after its writer's end
		m.a.waitReleased()
	}
	var shown string
	for _, n := range []*node{m.a, m.b} {
		var size int64
		shown, size = m.shown(n, name, where)
		if shown != may.before && shown != may.after {
			m.bad("%s: on %s there are %d bytes, neither what was before nor the new file", where, n.name, size)
		}
	}
	left := m.left(name)
	if shown == may.after {
		m.whole++
	} else {
		if strings.Contains(said, "closed") {
			m.bad("%s: what was closed is not there", where)
		}
		if strings.Contains(said, "written") && m.victim != victimWriter && m.again == nil && len(left) == 0 {
			m.bad("%s: what was written whole is neither published nor to be recovered", where)
		}
	}
	// Another publish of the name goes as if nothing had been.
	for _, id := range left {
		m.a.must("recover", "--discard", id)
	}
	again := writeFile(t, m.a.c.src("again"), 3000, 5)
	must(t, "cp", m.a.c.src("again"), m.a.path(name))
	require.Equal(t, again, digest(t, m.b.path(name)), where)
	must(t, "rm", m.a.path(name))
}

// shown is the digest of a file and its size, "" if there is none.
func (m *killMatrix) shown(n *node, name, where string) (string, int64) {
	t := m.t
	var r result
	eventually(t, 2*time.Minute, where+": "+name+" can be read on "+n.name, func() bool {
		r = runCmd(t, commandLimit, exec.Command("cat", n.path(name)))
		return r.code == 0 || strings.Contains(r.err, "No such file")
	})
	if r.code != 0 {
		return "", 0
	}
	return hexOf(r.out), int64(len(r.out))
}

// left are the ids of what a can recover of a name.
func (m *killMatrix) left(name string) (ids []string) {
	var list struct {
		Files []struct{ ID, Path string }
	}
	m.a.json(&list, "recover")
	for _, f := range list.Files {
		if f.Path == name {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// W4 W10 C1 C2 C3
func TestKilledAtEveryStepOfAPublish(t *testing.T) {
	t.Parallel()
	for _, p := range publishings {
		for _, victim := range []string{victimDaemon, victimWriter, victimPeer} {
			if victim == victimPeer && !p.held {
				continue // it has no part in it
			}
			t.Run(p.name+", the "+victim, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				m := &killMatrix{t: t, p: p, victim: victim, a: c.start("a"), b: c.start("b")}
				m.run(killStride)
			})
		}
	}
}
