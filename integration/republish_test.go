package integration

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func look(t testing.TB, script string, args ...string) *running {
	t.Helper()
	return launch(t, exec.Command(world.python, pythonArgs(script, args)...))
}

func (r *running) succeed(t testing.TB) string {
	t.Helper()
	res := r.finish(t, commandLimit)
	require.Zero(t, res.code, "%q: %s", r.cmd.Args, res)
	return strings.TrimSpace(string(res.out))
}

// R1 W2
func TestWhatIsClosedHereIsReadElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.mkdir(t, "d")
	pipe := func(here, there string, rounds int) { // the same size each time, many a second
		t.Helper()
		limit := max(commandLimit, time.Duration(rounds)*2*time.Second) // for a hang, not for speed
		r := runCmd(t, limit, exec.Command(world.python, pythonArgs("rounds.py", []string{"pipe", here, there, itoa(rounds)})...))
		require.Zero(t, r.code, "%s", r)
	}
	pipe(a, b, 300)
	pipe(b, a, 100)
}

func TestTwoNodesStormOneFolder(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.mkdir(t, "d")
	for _, r := range []*running{
		look(t, "rounds.py", "storm", a, "1", "150"), look(t, "rounds.py", "storm", b, "2", "150"),
		look(t, "rounds.py", "storm", a, "3", "150"), look(t, "rounds.py", "storm", b, "4", "150"),
	} {
		r.succeed(t)
	}
	sameOnBoth(t, "content", a, b)
	must(t, "sh", "-euc", `rm -f "$1"/*`, "sh", b)
	eventually(t, commandLimit, "an empty folder", func() bool { return must(t, "ls", "-A", a) == "" })
	p.healthy(t)
}

// R2 W5 N8
func TestReadersOfTheOldContentKeepIt(t *testing.T) {
	t.Parallel()
	if os.Getenv(plainEnv) != "" {
		return // a disk has one content for all
	}
	p := newPair(t)
	was := writeFile(t, p.src+"/old", 20*smallBlock+1, 1)
	is := writeFile(t, p.src+"/new", 20*smallBlock+1, 2)
	for name, change := range map[string]string{
		"overwritten": `cat "$1" >"$2/f"`,
		"renamed":     `cat "$1" >"$2/new"; mv "$2/new" "$2/f"`,
		"removed":     `rm "$2/f"; cat "$1" >"$2/f"`,
		"in place":    `dd if="$1" of="$2/f" conv=notrunc bs=64K status=none`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := p.mkdir(t, name)
			must(t, "cp", p.src+"/old", a+"/f")
			// Held on both nodes: by a descriptor that has read a little, elsewhere cold.
			hold := `exec 3<"$1"; head -c 10 <&3 >/dev/null; echo held >"$2"; read x; { head -c 10 "$3"; cat <&3; } | sha256sum`
			var held []*running
			var releases []func() error
			for i, dir := range []string{a, b} {
				ready := p.src + "/held " + name + itoa(i)
				cmd := exec.Command("bash", "-c", hold, "bash", dir+"/f", ready, p.src+"/old")
				stdin, err := cmd.StdinPipe()
				require.NoError(t, err)
				held, releases = append(held, launch(t, cmd)), append(releases, stdin.Close)
				eventually(t, commandLimit, ready, func() bool { _, err := os.Stat(ready); return err == nil })
			}
			must(t, "sh", "-euc", change, "sh", p.src+"/new", a)
			require.Equal(t, is, digest(t, b+"/f"))
			require.Equal(t, is, digest(t, a+"/f"))
			for i, r := range held {
				require.NoError(t, releases[i]())
				require.Equal(t, was, digestOf(t, r.finish(t, commandLimit)), "reader %d of the old content", i)
			}
		})
	}
}

func TestAnotherNodePublishesAgainAndTheFirstOneLeaves(t *testing.T) {
	t.Parallel()
	if os.Getenv(plainEnv) != "" {
		return
	}
	p := newPair(t)
	a, b := p.mkdir(t, "d")
	writeFile(t, p.src+"/one", 5*smallBlock, 1)
	two := writeFile(t, p.src+"/two", 5*smallBlock, 2)
	must(t, "cp", p.src+"/one", a+"/f")
	must(t, "cp", p.src+"/two", b+"/f")
	p.na.stop()
	require.Equal(t, two, digest(t, b+"/f"))
	c := p.c.start("c")
	require.Equal(t, two, digest(t, c.path("d/f")))
}

// writeOn writes the same 16 MiB again and again until a signal ends it, with what
// signals do by default: whoever started the tests may have had some ignored.
const writeOn = `
import os, signal, sys
for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_DFL)
fd, at = os.open(sys.argv[1], os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644), 0
while True: at = (at + os.pwrite(fd, bytes(65536), at)) % (16 << 20)`

// C3
func TestASignalThatEndsAWriterChangesNothing(t *testing.T) {
	t.Parallel()
	if os.Getenv(plainEnv) != "" {
		return
	}
	p := newPair(t)
	a, b := p.mkdir(t, "d")
	was := writeFile(t, p.src+"/was", 3*smallBlock, 1)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		for _, name := range []string{"old", "new"} {
			path := "/" + name + " " + sig.String()
			if name == "old" {
				must(t, "cp", p.src+"/was", a+path)
			}
			r := launch(t, exec.Command(world.python, "-c", writeOn, a+path))
			eventually(t, commandLimit, "something written", func() bool {
				info, err := os.Stat(a + path)
				return err == nil && info.Size() > 1<<20
			})
			r.signal(sig)
			require.True(t, r.wait(commandLimit), "the writer does not end")
			require.True(t, r.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled(), "the writer ended by itself: %s", r.errOut)
			for _, dir := range []string{a, b} {
				if name == "new" {
					soonAbsent(t, dir+path)
					continue
				}
				eventually(t, commandLimit, "what was there before at "+dir+path, func() bool {
					r := runCmd(t, commandLimit, digestCmd(dir+path))
					return r.code == 0 && digestOf(t, r) == was
				})
			}
		}
	}
	eventually(t, commandLimit, "what was written can be recovered", func() bool { return len(p.na.unpublished()) >= 6 })
	require.Len(t, p.na.unpublished(), 6)
	p.na.must("recover", "--all", "--unclosed")
	require.Len(t, strings.Fields(must(t, "sh", "-c", `ls -A "$1" | tr ' ' _`, "sh", b)), 6)
	p.healthy(t)
}

func TestHardLinksAndDevicesAreNotSupported(t *testing.T) {
	t.Parallel()
	if os.Getenv(plainEnv) != "" {
		return
	}
	p := newPair(t)
	a, _ := p.mkdir(t, "d")
	must(t, "sh", "-c", `echo x >"$1/f"`, "sh", a)
	for _, args := range [][]string{{"ln", "f", "g"}, {"mkfifo", "g"}, {"mknod", "g", "c", "1", "3"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = a
		r := runCmd(t, commandLimit, cmd)
		require.NotZero(t, r.code, "%q", args)
		require.Contains(t, r.err, "Operation not supported", "%q", args)
	}
	must(t, "cp", "--reflink=auto", a+"/f", a+"/g")
	require.Equal(t, "f\ng\n", must(t, "ls", "-A", a))
}

func TestWhatWasJustPublishedIsMapped(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	a, b := p.mkdir(t, "d")
	sum := writeFile(t, p.src+"/f", 30*smallBlock+1, 1)
	must(t, "cp", p.src+"/f", a+"/f")
	for _, dir := range []string{a, b, a, b} {
		for _, order := range []string{"random", "backward"} {
			require.Equal(t, sum, strings.TrimSpace(python(t, "reader.py", "mmap", dir+"/f", order)))
		}
	}
}
