package journal_test

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/node/journal"
)

// recorder is what the child does things to: a journal, or what is expected of
// one.
type recorder interface {
	write(dir meta.InodeID, v uint64, names ...string)
	remove(dir meta.InodeID, v uint64, name string)
	forget(dir meta.InodeID, v uint64, name string)
	move(from, to meta.InodeID)
}

// childStep does the thing of a number, from 1 on.
func childStep(r recorder, step uint64) {
	dir, name := meta.InodeID(step%5+2), fmt.Sprint("n", step)
	switch {
	case step%97 == 0:
		var names []string
		for i := range 400 {
			names = append(names, fmt.Sprint("many", step, "-", i))
		}
		r.write(dir, step, names...)
	case step%41 == 0:
		r.move(dir, 40)
	case step%5 == 0:
		r.write(dir, step, "again")
	case step%3 == 1 && step > 10:
		r.remove(meta.InodeID((step-7)%5+2), step, fmt.Sprint("n", step-7))
	case step%11 == 0:
		r.write(dir, step, name)
		r.forget(dir, step, name)
	default:
		r.write(dir, step, name)
	}
}

type realRecorder struct{ j *journal.Journal }

func (r realRecorder) write(dir meta.InodeID, v uint64, names ...string) {
	var sets []meta.Set
	for _, name := range names {
		b, err := meta.MarshalEntry(metatest.File(name, 1), nil)
		if err != nil {
			panic(err)
		}
		sets = append(sets, meta.Set{Field: name, Value: b})
	}
	r.j.Changed(dir, at(first, v), sets)
}

func (r realRecorder) remove(dir meta.InodeID, v uint64, name string) {
	r.j.Removed(dir, name, at(first, v))
}

func (r realRecorder) forget(dir meta.InodeID, v uint64, name string) {
	r.j.Forget(dir, []meta.Offer{{Name: name, Origin: at(first, v)}})
}
func (r realRecorder) move(from, to meta.InodeID) { r.j.Moved(from, to) }

// expected has the version each name was written at; negative: removed.
type expected map[meta.InodeID]map[string]int64

func (e expected) set(dir meta.InodeID, name string, v int64) {
	if e[dir] == nil {
		e[dir] = map[string]int64{}
	}
	e[dir][name] = v
}

func (e expected) write(dir meta.InodeID, v uint64, names ...string) {
	for _, n := range names {
		e.set(dir, n, int64(v))
	}
}
func (e expected) remove(dir meta.InodeID, v uint64, name string) { e.set(dir, name, -int64(v)) }
func (e expected) forget(dir meta.InodeID, _ uint64, name string) { delete(e[dir], name) }
func (e expected) move(from, to meta.InodeID) {
	for name, v := range e[from] {
		if max(e[to][name], -e[to][name]) <= max(v, -v) {
			e.set(to, name, v)
		}
	}
	delete(e, from)
}

func (e expected) copy() expected {
	c := expected{}
	for dir, all := range e {
		for name, v := range all {
			c.set(dir, name, v)
		}
	}
	return c
}

// unforgetting is what a step leaves that ends before it forgets a name.
type unforgetting struct{ expected }

func (unforgetting) forget(meta.InodeID, uint64, string) {}

// childMain changes names, and says so, until it is killed.
func childMain(home string) {
	j, err := journal.Open(home, nil)
	if err != nil {
		panic(err)
	}
	if os.Getenv("JOURNAL_LIMIT") != "" {
		limitedChild(j)
		return
	}
	var from uint64
	_, _ = fmt.Sscan(os.Getenv("JOURNAL_FROM"), &from)
	for step := from + 1; ; step++ {
		childStep(realRecorder{j}, step)
		fmt.Printf("%-500d\n", step) // a pipe takes few of them: the child is not far ahead
		if rand.IntN(200) == 0 {     // to be killed in its middle more often
			go func() { _ = j.Flush() }()
		}
		if rand.IntN(50) == 0 {
			time.Sleep(time.Millisecond) // a machine of one core must come to kill it
		}
	}
}

// TestKilled: a process that is killed loses nothing that a call returned for.
func TestKilled(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	home := t.TempDir()
	var done uint64
	want := expected{}
	for range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "JOURNAL_CHILD="+home, fmt.Sprint("JOURNAL_FROM=", done))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		stop := done + 1 + rnd.Uint64N(1000)
		killed := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			_, err := fmt.Sscan(lines.Text(), &done)
			require.NoError(t, err)
			childStep(want, done)
			if done >= stop && !killed {
				killed = true
				require.NoError(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait()
		require.True(t, killed)

		// The thing that it was about to say may be there, in part.
		more, partly := want.copy(), want.copy()
		childStep(more, done+1)
		childStep(unforgetting{partly}, done+1)
		j, err := journal.Open(home, nil)
		require.NoError(t, err)
		for _, dir := range []meta.InodeID{2, 3, 4, 5, 6, 40} {
			got := map[string]meta.Offer{}
			page, err := j.Names(dir, "", 1_000_000)
			require.NoError(t, err)
			for _, o := range page {
				got[o.Name] = o
			}
			for name, v := range want[dir] {
				o, ok := got[name]
				if v2, ok2 := more[dir][name]; v2 != v || !ok2 {
					continue
				}
				require.True(t, ok, "%d/%s is lost; %d done", dir, name, done)
				require.Equal(t, v < 0, o.Gone)
				require.Equal(t, uint64(max(v, -v)), o.Origin.Version)
			}
			for name := range got {
				require.True(t, has(want, dir, name) || has(more, dir, name) || has(partly, dir, name), "%d/%s came back; %d done", dir, name, done)
			}
		}
		require.NoError(t, j.Close())
		for i := range 2 {
			st, err := os.Stat(filepath.Join(home, fmt.Sprint("journal.log", i)))
			require.NoError(t, err)
			require.Zero(t, st.Size())
		}
		// The next child goes on after what may have been done.
		done++
		j, err = journal.Open(home, nil)
		require.NoError(t, err)
		childStep(realRecorder{j}, done)
		childStep(want, done)
		require.NoError(t, j.Close())
	}
}

func has(e expected, dir meta.InodeID, name string) bool {
	_, ok := e[dir][name]
	return ok
}

// TestHandoverFails: changes go on into the database, and the log says it once.
func TestHandoverFails(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{"full": "/dev/full", "cannot be opened": "/nowhere/at/all"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			for i := range 2 {
				require.NoError(t, os.Symlink(target, filepath.Join(home, fmt.Sprint("journal.log", i))))
			}
			var log bytes.Buffer
			j, err := journal.Open(home, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			for i := range 100 {
				put(t, j, 5, at(first, uint64(i+1)), metatest.File(fmt.Sprint(i), 1))
				if i%10 == 0 {
					require.NoError(t, j.Flush())
				}
			}
			require.NoError(t, j.Close())
			require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
			require.Len(t, names(t, open(t, home), 5), 100)
		})
	}
}

// limitedChild cannot write long files for a while.
func limitedChild(j *journal.Journal) {
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	check(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	r := realRecorder{j}
	many := func(from, to uint64) {
		for v := from; v < to; v++ {
			r.write(5, v, fmt.Sprintf("name-%d-%s", v, strings.Repeat("x", 150)))
		}
	}
	r.write(5, 1, "first")
	check(j.Flush())
	check(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100_000, Max: was.Max}))
	many(10, 200)
	if j.Flush() == nil {
		panic("the database took what it has no room for")
	}
	many(200, 230)
	if j.Flush() == nil {
		panic("the database took what it has no room for")
	}
	many(230, 1000) // most of them find no room in the files either
	check(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	many(1000, 1100)
	if os.Getenv("JOURNAL_LIMIT") == "flush" {
		check(j.Flush())
	}
	check(syscall.Kill(os.Getpid(), syscall.SIGKILL))
}

// TestDatabaseFull: what the database could not take is in the files, and taken
// as soon as that is possible, or at the next start.
func TestDatabaseFull(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"flush", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "JOURNAL_CHILD="+home, "JOURNAL_LIMIT="+how)
			out, err := cmd.CombinedOutput()
			require.ErrorContains(t, err, "signal: killed", "%s", out)
			got := names(t, open(t, home), 5)
			for v := range 1100 {
				if v >= 10 && v < 230 || v >= 1000 {
					require.Contains(t, got, fmt.Sprintf("name-%d-%s", v, strings.Repeat("x", 150)))
				}
			}
			require.Contains(t, got, "first")
		})
	}
}
