package fs

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// python starts a script in the mount; it has written what is to be written
// once it prints a line.
func (d *daemon) python(script string) *exec.Cmd {
	d.t.Helper()
	cmd := exec.Command("python3", "-c", "import os, signal, sys, mmap, threading, time, subprocess\n"+script)
	cmd.Dir, cmd.Stderr = d.point, os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, cmd.Start())
	d.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(d.t, err)
	return cmd
}

// isHere checks what this node shows of a file; nil: nothing.
func (d *daemon) isHere(path string, want []byte) {
	d.t.Helper()
	if want == nil {
		_, err := os.Stat(d.at(path))
		require.ErrorIs(d.t, err, os.ErrNotExist)
		return
	}
	readBack(d.t, d.at(path), want)
	info, err := os.Stat(d.at(path))
	require.NoError(d.t, err)
	require.Equal(d.t, int64(len(want)), info.Size())
}

const (
	partWritten = `
f = os.open("f", os.O_WRONLY | os.O_CREAT | FLAG)
os.write(f, b"half")
print(flush=True)
time.sleep(100)`
	byThread = `
def run():
    f = os.open("f", os.O_WRONLY | os.O_CREAT | FLAG)
    os.write(f, b"half")
    print(flush=True)
    time.sleep(100)
threading.Thread(target=run).start()`
	notWritten = `
f = os.open("f", os.O_WRONLY | os.O_CREAT | FLAG)
print(flush=True)
time.sleep(100)`
	byMapping = `
f = os.open("f", os.O_RDWR | os.O_CREAT | FLAG)
os.ftruncate(f, 4)
m = mmap.mmap(f, 4)
m[:4] = b"half"
print(flush=True)
time.sleep(100)`
	duplicated = `
f = os.open("f", os.O_WRONLY | os.O_CREAT | FLAG)
g = os.dup(f)
os.write(g, b"half")
print(flush=True)
time.sleep(100)`
	inGroup = `
f = os.open("f", os.O_WRONLY | os.O_CREAT | FLAG)
p = subprocess.Popen(["sh", "-c", "printf half; echo >&2; exec sleep 100"], stdout=f, stderr=1)
time.sleep(100)`
)

func TestKilledWriters(t *testing.T) { // W4, C3
	t.Parallel()
	for name, script := range map[string]string{
		"one write": partWritten, "by a thread": byThread, "nothing written": notWritten,
		"by a mapping": byMapping, "duplicated": duplicated, "with its child": inGroup,
	} {
		for how, flag := range map[string]string{"new": "0", "cut": "os.O_TRUNC", "changed": "0"} {
			for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV} {
				if sig != syscall.SIGKILL && (name != "one write" || how == "new") {
					continue
				}
				t.Run(name+", "+how+", "+sig.String(), func(t *testing.T) {
					t.Parallel()
					killWriter(t, script, flag, how != "new", sig)
				})
			}
		}
	}
}

func killWriter(t *testing.T, script, flag string, over bool, sig syscall.Signal) {
	d := mountFakes(t, writable)
	var old []byte
	if over {
		old = []byte("what was before")
		require.NoError(t, os.WriteFile(d.at("f"), old, 0o644))
		d.closed()
	}
	pid := d.python("os.setpgid(0, 0)\nFLAG = " + flag + "\n" + script).Process.Pid
	changed := d.state().OpenFiles > 0 && (!over || script != notWritten || flag != "0")
	require.NoError(t, syscall.Kill(-pid, sig))
	s := d.closed()
	if over {
		d.isElsewhere("f", old)
	} else {
		require.False(t, d.seen("f").Exists)
	}
	d.isHere("f", old)
	if changed {
		require.Len(t, s.Broken, 1)
	} else {
		require.Empty(t, s.Broken)
	}
	require.NoError(t, os.WriteFile(d.at("f"), []byte("new"), 0o644))
	d.isElsewhere("f", []byte("new"))
	d.isHere("f", []byte("new"))
}

// Who ends by itself without a close has written what it wanted to write.
func TestWritersThatEndWithoutClosing(t *testing.T) { // W3
	t.Parallel()
	for name, end := range map[string]string{
		"exit":            "sys.exit(1)",
		"exit at once":    "os._exit(3)",
		"by a thread":     "threading.Thread(target=lambda: os._exit(0)).start(); time.sleep(100)",
		"told to end":     "signal.signal(signal.SIGTERM, lambda *_: os._exit(0)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(100)",
		"execute":         "os.execvp('sleep', ['sleep', '0.01'])",
		"execute with it": "os.set_inheritable(f, True); os.execvp('sleep', ['sleep', '0.05'])",
		"stopped a while": "subprocess.Popen(['sh', '-c', 'while sleep 0.1; kill -CONT %d; do :; done' % os.getpid()], stderr=subprocess.DEVNULL); os.kill(os.getpid(), signal.SIGSTOP); os._exit(0)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t, writable)
			cmd := d.python("f = os.open('f', os.O_WRONLY | os.O_CREAT)\nos.write(f, b'whole')\nprint(flush=True)\n" + end)
			_ = cmd.Wait()
			s := d.closed()
			d.isElsewhere("f", []byte("whole"))
			require.Empty(t, s.Broken)
		})
	}
}

// The close of who lives on decides, whoever else was killed.
func TestKilledAmongOthers(t *testing.T) { // W3
	t.Parallel()
	const fork = `
f = os.open("f", os.O_WRONLY | os.O_CREAT)
os.write(f, b"one")
r, w = os.pipe()
child = os.fork()
`
	for name, c := range map[string]struct{ script, want string }{
		"the opener, not its child": {fork + `
if child == 0:
    os.close(w)
    os.read(r, 1)
    os.write(f, b"two")
    os._exit(0)
print(flush=True)
os.kill(os.getpid(), signal.SIGKILL)`, "onetwo"},
		"a child, not the opener": {fork + `
if child == 0:
    os.write(f, b"two")
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
os.close(f)
print(flush=True)`, "onetwo"},
		"a child, after the opener's close": {fork + `
if child == 0:
    os.close(w)
    os.read(r, 1)
    os.write(f, b"two")
    os.kill(os.getpid(), signal.SIGKILL)
os.close(f)
os.close(w)
os.waitpid(child, 0)
print(flush=True)`, "one"},
		"who has it open, too": {fork + `
if child == 0:
    g = os.open("f", os.O_WRONLY | os.O_APPEND)
    os.write(g, b"two")
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
os.write(f, b"x")
os.close(f)
print(flush=True)`, "onexwo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t, writable)
			_ = d.python(c.script).Wait()
			d.closed()
			d.isElsewhere("f", []byte(c.want))
			d.isHere("f", []byte(c.want))
		})
	}
}

// What a mapping wrote after the close, until its process was killed.
func TestKilledWithAMapping(t *testing.T) { // W4
	t.Parallel()
	d := mountFakes(t, writable)
	cmd := d.python(`
f = os.open("f", os.O_RDWR | os.O_CREAT)
os.write(f, b"whole")
m = mmap.mmap(f, 5)
os.close(f)
os.close(os.open("f", os.O_RDONLY))
m[:4] = b"half"
print(flush=True)
time.sleep(100)`)
	require.NoError(t, cmd.Process.Kill())
	d.closed()
	d.isElsewhere("f", []byte("whole"))
	d.isHere("f", []byte("whole"))
}

// Who reads what a killed writer wrote goes on; the name is free for others.
func TestReaderOfABrokenFile(t *testing.T) { // R2, R4
	t.Parallel()
	d := mountFakes(t, writable)
	require.NoError(t, os.WriteFile(d.at("f"), []byte("before"), 0o644))
	cmd := d.python("FLAG = os.O_TRUNC\n" + partWritten)
	reader := openFile(t, d.at("f"), os.O_RDONLY)
	require.NoError(t, cmd.Process.Kill())
	eventually(t, func() bool { s := d.state(); return len(s.Broken) == 1 && s.Waiting == 0 }, "broken")
	d.isHere("f", []byte("before"))
	f := openFile(t, d.at("f"), os.O_WRONLY|os.O_APPEND)
	write(t, f, []byte(" and after"))
	require.NoError(t, f.Close())
	d.isElsewhere("f", []byte("before and after"))
	got := make([]byte, 10)
	n, _ := reader.ReadAt(got, 0)
	require.Equal(t, "half", string(got[:n]))
	require.NoError(t, reader.Close())
	d.closed()
	d.isHere("f", []byte("before and after"))
	d.isElsewhere("f", []byte("before and after"))
}

// The open is under way when the caller is killed.
func TestKilledInOpen(t *testing.T) { // W4, C3
	t.Parallel()
	for name, old := range map[string][]byte{"new": nil, "cut": []byte("before")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mountFakes(t, writable)
			if old != nil {
				require.NoError(t, os.WriteFile(d.at("f"), old, 0o644))
			}
			d.closed()
			d.do(order{Op: "gateopen", On: true})
			cmd := d.python("print(flush=True)\nos.open('f', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)\ntime.sleep(100)")
			eventually(t, func() bool { return d.state().Opening == 1 }, "opening")
			require.NoError(t, cmd.Process.Kill())
			d.do(order{Op: "gateopen"})
			_ = cmd.Wait()
			d.closed()
			d.isHere("f", old)
			if old == nil {
				require.False(t, d.seen("f").Exists)
			} else {
				d.isElsewhere("f", old)
			}
		})
	}
}

// rewritten is the size of what a rewriter writes.
const rewritten = 10 * 4096

// runRewriter writes a file anew again and again, each time all of one letter.
func runRewriter() error {
	return loop(func(path string) (any, error) {
		go func() {
			for i := 0; ; i++ {
				if err := writeAnew(path, byte('a'+i%26)); err != nil {
					exit(err)
				}
			}
		}()
		return nil, nil
	})
}

func writeAnew(path string, letter byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	page := bytes.Repeat([]byte{letter}, 4096)
	for range rewritten / len(page) {
		if _, err := f.Write(page); err != nil {
			return err
		}
	}
	return f.Close()
}

// Killed at any moment of making, writing, closing and cutting a file.
func TestKilledAtAnyMoment(t *testing.T) { // W4
	t.Parallel()
	const rounds = 60
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	d := mountFakes(t, writable)
	shown := map[bool]int{}
	for i := range rounds {
		name := "f" + itoa(i%3)
		p := spawn(t, "rewriter")
		require.NoError(t, p.try(d.at(name), nil))
		time.Sleep(time.Duration(random.IntN(30_000)) * time.Microsecond)
		p.kill()
		d.closed()
		s := d.seen(name)
		shown[s.Exists]++
		if !s.Exists {
			d.isHere(name, nil)
			continue
		}
		got, err := os.ReadFile(d.at(name))
		require.NoError(t, err)
		require.Len(t, got, rewritten)
		require.Equal(t, got, bytes.Repeat(got[:1], rewritten))
		require.Equal(t, sum(got), s.Sum)
	}
	t.Logf("there %d times, absent %d times, broken %d times", shown[true], shown[false], len(d.state().Broken))
}

func TestParseKilled(t *testing.T) {
	t.Parallel()
	line := func(flags, code string) []byte {
		fields := bytes.Fields(bytes.Repeat([]byte("0 "), 50))
		fields[statFlags], fields[statExitCode] = []byte(flags), []byte(code)
		return append([]byte("12 (a) b( c) "), bytes.Join(fields, []byte(" "))...)
	}
	require.True(t, parseKilled(line("4194564", "9")))
	require.True(t, parseKilled(line("4194564", "139")), "with a core dump")
	require.False(t, parseKilled(line("4194564", "256")), "exit(1)")
	require.False(t, parseKilled(line("4194564", "0")))
	require.False(t, parseKilled(line("4194560", "19")), "stopped")
	require.False(t, parseKilled([]byte("12 (a) S 1 2")))
	require.False(t, parseKilled(nil))
	stat, err := os.ReadFile("/proc/self/stat")
	require.NoError(t, err)
	require.False(t, parseKilled(stat))
	require.False(t, killedThread(0))
	require.False(t, killedProcess(uint32(os.Getpid())))
}
