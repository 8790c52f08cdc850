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

// Bounds of a read without progress: some times what is promised for each of its
// requests, of a machine that is busy.
const (
	deadBound  = 10 * 5 * time.Second // no provider lives
	stuckBound = 5 * 30 * time.Second // one lives and gives nothing
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
			t.Logf("took %v", r.took)
			requireEIO(t, r, data)
			require.Less(t, r.took, deadBound)
			require.Equal(t, "half\nwhole\n", must(t, "ls", b.mnt), "names vanished with their bytes")
			must(t, "stat", b.path("half"))

			a.start()
			require.Equal(t, hexOf(data), hexOf([]byte(readBack(t, b.path("half")))))
		})
	}
}

func TestANodeThatHasReadServesTheNext(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, d := c.start("a"), c.start("b"), c.start("c")
	sum := registered(t, a, "f", 20*smallChunk+5, 1)
	require.Equal(t, sum, digest(t, b.path("f")))
	d.waitHolder("f", "b") // which says so in the store some time after it has all of it
	a.kill()
	require.Equal(t, sum, digest(t, d.path("f")))
	eventually(t, commandLimit, "b has sent it", func() bool { return b.status().Counters["sent_bytes"] >= 20*smallChunk })
}

func TestSeveralProvidersShareTheWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// Each alone would need ten seconds, so that a stop of one is not the end of the other.
	a, b, d := c.start("a", "--upload-limit=2MiB"), c.start("b", "--upload-limit=2MiB"), c.start("c")
	sum := registered(t, a, "f", 100*smallChunk, 1)
	b.register(c.src("f"), "f")
	require.Len(t, d.stat("f").Providers, 2)
	require.Equal(t, sum, digest(t, d.path("f")))
	d.waitLocal("f")
	for _, n := range []*node{a, b} {
		eventually(t, commandLimit, n.name+" was used", func() bool { return n.status().Counters["sent_bytes"] > 0 })
	}
	d.receivedAtMost(102*smallChunk, smallBlock)
}

func TestTwoDeadProvidersAndOneLive(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b, d, e := c.start("a"), c.start("b"), c.start("c"), c.start("d")
	sum := registered(t, a, "f", 20*smallChunk, 1)
	b.must("get", b.path("f"))
	d.must("get", d.path("f"))
	eventually(t, commandLimit, "three providers are known", func() bool { return len(e.stat("f").Providers) == 3 })
	b.kill()
	d.kill()
	r := runCmd(t, commandLimit, digestCmd(e.path("f")))
	require.Zero(t, r.code, r.String())
	require.Equal(t, sum, digestOf(t, r))
	require.Less(t, r.took, deadBound)
	eventually(t, commandLimit, "the dead are no longer chosen", func() bool {
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
	eventually(t, commandLimit, "two providers are known", func() bool { return len(d.stat("f").Providers) == 2 })
	b.proc.signal(syscall.SIGSTOP)
	r := runCmd(t, commandLimit, digestCmd(d.path("f")))
	b.proc.signal(syscall.SIGCONT)
	require.Zero(t, r.code, r.String())
	require.Equal(t, sum, digestOf(t, r))
	require.Less(t, r.took, 30*time.Second, "a block was awaited from it to the end")
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
	require.Equal(t, sum, hexOf([]byte(readBack(t, b.path("f")))))
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
			eventually(t, commandLimit, "two providers are known", func() bool { return len(d.stat("f").Providers) == 2 })

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
			require.Equal(t, sum, hexOf([]byte(readBack(t, e.path("f")))))
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
	require.Equal(t, sum, hexOf([]byte(readBack(t, b.path("f")))))
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
	conn, err := net.DialTimeout("tcp", addr, time.Minute)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write(request)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err, "answer to %q", request)
	_, _ = io.CopyN(io.Discard, resp.Body, 1<<20)
	_ = resp.Body.Close()
	return resp
}
