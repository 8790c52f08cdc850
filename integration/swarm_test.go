package integration

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Bounds of a read without progress: what is promised, and room for a busy
// machine.
const (
	deadBound  = 5*time.Second + 15*time.Second  // no provider lives
	stuckBound = 30*time.Second + 20*time.Second // one lives and gives nothing
)

func TestAKilledProviderLeavesCachedBytesAndEIO(t *testing.T) {
	t.Parallel()
	for _, mode := range passthroughModes {
		t.Run("passthrough="+mode, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--passthrough="+mode, "--prefetch=off")
			a, b := c.start("a"), c.start("b")
			registered(t, a, "half", 30*smallChunk, 1)
			whole := registered(t, a, "whole", 5*smallChunk, 2)
			data := content(t, c.src("half"))
			require.Equal(t, whole, digest(t, b.path("whole")))
			b.waitLocal("whole")
			sameAt(t, c.src("half"), b.path("half"), 0, 2*smallBlock)
			a.kill()

			require.Equal(t, whole, digest(t, b.path("whole")))
			sameAt(t, c.src("half"), b.path("half"), 0, 2*smallBlock)
			r := runCmd(t, stuckBound, exec.Command("cat", b.path("half")))
			requireEIO(t, r, data)
			require.Less(t, r.took, deadBound)
			require.Equal(t, "half\nwhole\n", must(t, "ls", b.mnt), "names vanished with their bytes")
			must(t, "stat", b.path("half"))

			a.start()
			eventually(t, 20*time.Second, "the file reads again", func() bool {
				r := runCmd(t, stuckBound, digestCmd(b.path("half")))
				return r.code == 0 && digestOf(t, r) == hexOf(data)
			})
		})
	}
}

func TestANodeThatHasReadServesTheNext(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, d := c.start("a"), c.start("b"), c.start("c")
	sum := registered(t, a, "f", 20*smallChunk+5, 1)
	require.Equal(t, sum, digest(t, b.path("f")))
	b.waitLocal("f")
	a.kill()
	require.Equal(t, sum, digest(t, d.path("f")))
	require.GreaterOrEqual(t, b.status().Counters["sent_bytes"], int64(20*smallChunk))
}

func TestSeveralProvidersShareTheWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, d := c.start("a"), c.start("b"), c.start("c")
	sum := registered(t, a, "f", 100*smallChunk, 1)
	b.must("get", b.path("f"))
	eventually(t, 20*time.Second, "two providers are known", func() bool { return len(d.stat("f").Providers) == 2 })
	before := b.status().Counters["sent_bytes"]
	require.Equal(t, sum, digest(t, d.path("f")))
	d.waitLocal("f")
	fromB := b.status().Counters["sent_bytes"] - before
	require.Positive(t, fromB, "the second provider was not used")
	require.Less(t, fromB, int64(100*smallChunk), "the first provider was not used")
	require.LessOrEqual(t, d.received(), int64(102*smallChunk))
}

func TestTwoDeadProvidersAndOneLive(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, d, e := c.start("a"), c.start("b"), c.start("c"), c.start("d")
	sum := registered(t, a, "f", 20*smallChunk, 1)
	b.must("get", b.path("f"))
	d.must("get", d.path("f"))
	eventually(t, 20*time.Second, "three providers are known", func() bool { return len(e.stat("f").Providers) == 3 })
	b.kill()
	d.kill()
	r := runCmd(t, commandLimit, digestCmd(e.path("f")))
	require.Zero(t, r.code, r.String())
	require.Equal(t, sum, digestOf(t, r))
	require.Less(t, r.took, 15*time.Second)
	eventually(t, 20*time.Second, "the dead are no longer chosen", func() bool {
		alive := 0
		for _, p := range e.stat("f").Providers {
			if p.Node == a.status().Node.ID || p.Node == e.status().Node.ID {
				alive++
			}
		}
		return alive >= 1
	})
}

func TestAFrozenProviderIsHedged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, d := c.start("a"), c.start("b"), c.start("c")
	sum := registered(t, a, "f", 40*smallChunk, 1)
	b.must("get", b.path("f"))
	eventually(t, 20*time.Second, "two providers are known", func() bool { return len(d.stat("f").Providers) == 2 })
	b.proc.signal(syscall.SIGSTOP)
	r := runCmd(t, commandLimit, digestCmd(d.path("f")))
	b.proc.signal(syscall.SIGCONT)
	require.Zero(t, r.code, r.String())
	require.Equal(t, sum, digestOf(t, r))
	require.Less(t, r.took, 15*time.Second)
}

func TestTheOnlyProviderFrozenIsEIOWithinTheBoundAndRecovers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--prefetch=off")
	a, b := c.start("a"), c.start("b")
	sum := registered(t, a, "f", 20*smallChunk, 1)
	data := content(t, c.src("f"))
	sameAt(t, c.src("f"), b.path("f"), 0, smallBlock)
	a.proc.signal(syscall.SIGSTOP)
	r := runCmd(t, stuckBound, exec.Command("cat", b.path("f")))
	requireEIO(t, r, data)
	a.proc.signal(syscall.SIGCONT)
	eventually(t, 30*time.Second, "the file reads again", func() bool {
		r := runCmd(t, stuckBound, digestCmd(b.path("f")))
		return r.code == 0 && digestOf(t, r) == sum
	})
}

func TestALyingProviderNeverShows(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"flipped": flipped, "cut": cut, "reset": reset, "stuck": stuck, "garbage": garbage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a, p := startProxied(c, "a")
			b, d := c.start("b"), c.start("c")
			sum := registered(t, a, "f", 20*smallChunk, 1)
			data := content(t, c.src("f"))
			b.must("get", b.path("f"))
			eventually(t, 20*time.Second, "two providers are known", func() bool { return len(d.stat("f").Providers) == 2 })

			p.set(f)
			r := runCmd(t, commandLimit, digestCmd(d.path("f")))
			require.Zero(t, r.code, "with one honest provider: %s", r)
			require.Equal(t, sum, digestOf(t, r))
			require.Less(t, r.took, stuckBound)

			e := c.start("d")
			b.kill()
			d.kill()
			r = runCmd(t, 2*stuckBound, exec.Command("cat", e.path("f")))
			if r.code == 0 { // a fault may be survived by asking again
				require.Equal(t, sum, hexOf(r.out))
			} else {
				requireEIO(t, r, data)
			}
			p.set(honest)
			eventually(t, 60*time.Second, "the file reads again", func() bool {
				r := runCmd(t, 2*stuckBound, digestCmd(e.path("f")))
				return r.code == 0 && digestOf(t, r) == sum
			})
		})
	}
}

func TestARestartedProviderIsFoundAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a", "--listen=127.0.0.1:"+itoa(freePort(t))), c.start("b")
	sum := registered(t, a, "f", 10*smallChunk, 1)
	sameAt(t, c.src("f"), b.path("f"), 0, 100)
	a.kill()
	a.start() // same address, another incarnation
	require.Equal(t, sum, digest(t, b.path("f")))
}

func TestANodeOnTheSameAddressIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	port := itoa(freePort(t))
	a, b := c.start("a", "--listen=127.0.0.1:"+port), c.start("b")
	registered(t, a, "f", 10*smallChunk, 1)
	data := content(t, c.src("f"))
	a.kill()
	other := newCluster(t)
	x := other.start("x", "--listen=127.0.0.1:"+port) // of another cluster
	registered(t, x, "f", 10*smallChunk, 2)
	r := runCmd(t, stuckBound, exec.Command("cat", b.path("f")))
	requireEIO(t, r, data)
	require.Zero(t, x.status().Counters["sent_bytes"])
}

func TestAStrangerGetsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, p := startProxied(c, "a")
	b := c.start("b")
	registered(t, a, "f", 10*smallChunk, 1)
	digest(t, b.path("f"))
	request := p.blockRequest(t)
	require.Less(t, ask(t, p.target, request).StatusCode, 300, "the request as it was")

	lines := bytes.Split(bytes.TrimSuffix(request, []byte("\r\n\r\n")), []byte("\r\n"))
	var ours []int
	for i, line := range lines[1:] {
		if bytes.HasPrefix(bytes.ToLower(line), []byte("p2pfs-")) || bytes.HasPrefix(bytes.ToLower(line), []byte("authorization:")) || bytes.HasPrefix(bytes.ToLower(line), []byte("x-p2pfs-")) {
			ours = append(ours, i+1)
		}
	}
	require.NotEmpty(t, ours, "no header of ours in:\n%s", request)
	without := func(drop ...int) []byte {
		var kept [][]byte
		for i, line := range lines {
			if !slices.Contains(drop, i) {
				kept = append(kept, line)
			}
		}
		return append(bytes.Join(kept, []byte("\r\n")), "\r\n\r\n"...)
	}
	require.GreaterOrEqual(t, ask(t, p.target, without(ours...)).StatusCode, 400, "no credentials at all")
	for _, i := range ours {
		if name, _, _ := bytes.Cut(lines[i], []byte(":")); bytes.Contains(bytes.ToLower(name), []byte("token")) {
			require.Equal(t, http.StatusForbidden/100, ask(t, p.target, without(i)).StatusCode/100, "without %s", name)
			forged := bytes.Replace(request, lines[i], append(bytes.Clone(lines[i][:len(lines[i])-4]), "0000"...), 1)
			require.GreaterOrEqual(t, ask(t, p.target, forged).StatusCode, 400, "a forged token")
		}
	}
	for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/../../etc/passwd"} {
		got := ask(t, p.target, []byte("GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
		require.GreaterOrEqual(t, got.StatusCode, 400, "%s on the port of the bytes", path)
	}
}

func TestARangeOutsideTheObjectIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, p := startProxied(c, "a")
	b := c.start("b")
	registered(t, a, "f", 2*smallChunk, 1)
	digest(t, b.path("f"))
	request := string(p.blockRequest(t))
	head, rest, _ := strings.Cut(request, "\r\n")
	for _, number := range []string{"-1", "99999999999", "18446744073709551615", "9223372036854775807-9223372036854775807"} {
		lines := strings.Split(rest, "\r\n")
		for i, line := range lines {
			if name, _, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "range") {
				lines[i] = "Range: bytes=" + number + "-" + number
			}
		}
		for _, changed := range []string{head + "\r\n" + strings.Join(lines, "\r\n"), strings.Replace(head, " HTTP", "/"+number+" HTTP", 1) + "\r\n" + rest} {
			if changed == request {
				continue
			}
			resp := ask(t, p.target, []byte(changed))
			require.GreaterOrEqual(t, resp.StatusCode, 400, "%q was answered", changed)
			require.NotEqual(t, 500, resp.StatusCode, "%q is the asker's fault", changed)
		}
	}
	require.True(t, a.proc.alive())
}

// ask sends bytes as they are and returns the head of the answer.
func ask(t testing.TB, addr string, request []byte) *http.Response {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Write(request)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err, "answer to %q", request)
	_, _ = io.CopyN(io.Discard, resp.Body, 1<<20)
	_ = resp.Body.Close()
	return resp
}
