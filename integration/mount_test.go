package integration

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMountWithoutURLEmbedsAStoreThatOthersJoin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.url = ""
	a := c.start("a", "--meta-timeout=60s", "--meta-listen", "127.0.0.1:"+itoa(freePort(t))) // the store waits for the disk
	require.Equal(t, "fuse.p2pfs", mountType(a.mnt))
	st := a.status()
	require.NotEmpty(t, st.Node.ID)
	require.Equal(t, "a", st.Node.Name)
	require.True(t, strings.HasPrefix(st.Meta.URL, "etcd://"), "meta.url is %q", st.Meta.URL)
	require.NotEmpty(t, st.Meta.State)
	require.Contains(t, string(content(t, a.logPath())), st.Meta.URL, "the URL for others is not printed")

	c.url = st.Meta.URL
	b := c.start("b", "--meta-timeout=60s")
	sum := registered(t, a, "f", 5*smallChunk+1, 1)
	require.Equal(t, sum, digest(t, b.path("f")))
	require.Equal(t, "f\n", must(t, "ls", b.mnt))
	require.NotEqual(t, st.Node.ID, b.status().Node.ID)

	a.stop()
	a.start() // the same cluster, from the same directory
	require.Equal(t, st.Node.ID, a.status().Node.ID)
	require.Equal(t, sum, digest(t, a.path("f")))
}

func TestEveryWayOfEndingIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(n *node) *exec.Cmd
	}{
		{"SIGTERM", func(n *node) *exec.Cmd { return exec.Command("kill", "-TERM", itoa(n.proc.pid())) }},
		{"SIGINT", func(n *node) *exec.Cmd { return exec.Command("kill", "-INT", itoa(n.proc.pid())) }},
		{"p2pfs umount", func(n *node) *exec.Cmd { return n.command("umount", n.mnt) }},
		{"p2pfs umount --lazy", func(n *node) *exec.Cmd { return n.command("umount", "--lazy", n.mnt) }},
		{"umount", func(n *node) *exec.Cmd { return exec.Command("umount", n.mnt) }},
		{"fusermount3 -u", func(n *node) *exec.Cmd { return exec.Command("fusermount3", "-u", n.mnt) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := c.start("a")
			sum := registered(t, n, "f", smallChunk, 1)
			require.Equal(t, sum, digest(t, n.path("f")))
			var r result
			eventually(t, endBound, "who read has closed it", func() bool { // the kernel is told a moment after its end
				r = runCmd(t, endBound, tt.end(n))
				return !strings.Contains(r.err, "busy")
			})
			require.Zero(t, r.code, r.String())
			require.True(t, n.proc.wait(endBound), "the daemon goes on")
			require.NoError(t, n.proc.err, tail(n.logPath(), 20))
			require.Empty(t, mountType(n.mnt))
			n.start() // nothing was left locked
			require.Equal(t, sum, digest(t, n.path("f")))
		})
	}
}

func TestSIGTERMEndsWhileAFileIsOpenAndThePeerHangs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	registered(t, a, "f", 40*smallChunk, 1)
	a.proc.signal(syscall.SIGSTOP)
	reader := launch(t, exec.Command("cat", b.path("f")))
	eventually(t, time.Minute, "the reader is under way", func() bool {
		link, _ := os.Readlink(filepath.Join("/proc", itoa(reader.pid()), "fd", "3"))
		return link == b.path("f")
	})
	b.proc.signal(syscall.SIGTERM)
	require.True(t, b.proc.wait(endBound), "the daemon goes on")
	require.True(t, reader.wait(time.Minute), "the reader hangs")
	require.Empty(t, mountType(b.mnt))
}

func TestUmountOfABusyMountNamesTheHolder(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.start("a")
	registered(t, n, "f", 1, 1)
	holder := launch(t, exec.Command("sh", "-c", `exec sleep 600 <"$1"`, "sh", n.path("f")))
	eventually(t, time.Minute, "held open", func() bool {
		link, _ := os.Readlink(filepath.Join("/proc", itoa(holder.pid()), "fd", "0"))
		return link == n.path("f")
	})
	r := runCmd(t, endBound, n.command("umount", n.mnt))
	require.NotZero(t, r.code, "a busy mount was taken away")
	require.Contains(t, r.err, itoa(holder.pid()), "the holder is not named")
	require.True(t, n.proc.alive())
	r = runCmd(t, endBound, n.command("umount", "--lazy", n.mnt))
	require.Zero(t, r.code, r.String())
	require.Empty(t, mountType(n.mnt))
}

func TestDaemonFlagReturnsWhenReadyWithATrueExitCode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.node("a", "-d")
	r := runCmd(t, commandLimit, n.command(n.args...))
	require.Zero(t, r.code, r.String())
	require.Equal(t, "fuse.p2pfs", mountType(n.mnt), "returned before the mount was there")
	require.Equal(t, "a", n.status().Node.Name)

	again := runCmd(t, commandLimit, n.command(n.args...))
	require.NotZero(t, again.code, "a second daemon on the same mountpoint and cache")
	require.Contains(t, again.err, n.dir, "the reason does not name the place")

	require.Zero(t, runCmd(t, endBound, n.command("umount", n.mnt)).code)
	require.Empty(t, mountType(n.mnt))
}

func TestADeadMountIsDetachedAtTheNextStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.start("a")
	sum := registered(t, n, "f", 3*smallChunk, 1)
	n.proc.kill()
	require.NotEmpty(t, mountType(n.mnt), "the kernel took the mount away by itself")
	n.start()
	require.Equal(t, sum, digest(t, n.path("f")))
	require.Equal(t, 1, strings.Count(must(t, "cat", "/proc/self/mounts"), " "+n.mnt+" "), "mounts are stacked")
}

// refused starts a node that must not start, and returns what it said.
func refused(t *testing.T, n *node) string {
	t.Helper()
	r := runCmd(t, commandLimit, n.command(n.args...))
	require.NotZero(t, r.code, "%q started: %s", n.args, r)
	require.NotContains(t, r.err, "panic")
	require.NotContains(t, r.err, "goroutine")
	return r.err
}

func TestMountRefusesWithTheReason(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	held, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer held.Close()

	with := func(name string, change func(n *node)) *node {
		n := c.node(name)
		change(n)
		return n
	}
	replace := func(n *node, from, to string) {
		for i := range n.args {
			if n.args[i] == from {
				n.args[i] = to
			}
		}
	}
	file := c.src("file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, tt := range []struct {
		name string
		node *node
		says []string
	}{
		{"cache in use", with("b1", func(n *node) { replace(n, n.cache, a.cache) }), []string{a.cache, "in use"}},
		{"mountpoint in use", with("b2", func(n *node) { replace(n, n.mnt, a.mnt) }), []string{a.mnt, "mountpoint"}},
		{"mountpoint in use, and port", with("b18", func(n *node) {
			replace(n, n.mnt, a.mnt)
			n.args = append(n.args, "--listen", held.Addr().String())
		}), []string{a.mnt, "already a mountpoint"}},
		{"mountpoint inside the cache", with("b3", func(n *node) {
			inner := filepath.Join(n.cache, "inner")
			require.NoError(t, os.MkdirAll(inner, 0o755))
			replace(n, n.mnt, inner)
		}), []string{"cache"}},
		{"cache inside the mountpoint", with("b4", func(n *node) { replace(n, n.cache, filepath.Join(n.mnt, "cache")) }), []string{"cache"}},
		{"overlap by a symlink", with("b5", func(n *node) {
			link := filepath.Join(n.dir, "link")
			require.NoError(t, os.Symlink(n.mnt, link))
			replace(n, n.cache, filepath.Join(link, "cache"))
		}), []string{"cache"}},
		{"no such mountpoint", with("b6", func(n *node) { replace(n, n.mnt, n.mnt+"/no/such") }), []string{"no/such"}},
		{"mountpoint is a file", with("b7", func(n *node) { replace(n, n.mnt, file) }), []string{file}},
		{"port in use", with("b8", func(n *node) { n.args = append(n.args, "--listen", held.Addr().String()) }), []string{held.Addr().String()}},
		{"HTTP port in use", with("b9", func(n *node) { n.args = append(n.args, "--http", held.Addr().String()) }), []string{held.Addr().String()}},
		{"unknown scheme", with("b10", func(n *node) { replace(n, c.url, "gopher://127.0.0.1:1") }), []string{"gopher"}},
		{"broken URL", with("b11", func(n *node) { replace(n, c.url, "etcd://") }), []string{"etcd://"}},
		{"unknown flag", with("b12", func(n *node) { n.args = append(n.args, "--no-such-flag") }), []string{"no-such-flag"}},
		{"bad consistency", with("b13", func(n *node) { n.args = append(n.args, "--consistency", "sometimes") }), []string{"consistency", "sometimes"}},
		{"bad passthrough", with("b14", func(n *node) { n.args = append(n.args, "--passthrough", "maybe") }), []string{"passthrough", "maybe"}},
		{"bad chunk size", with("b15", func(n *node) { n.args = append(n.args, "--chunk-size", "1000") }), []string{"chunk", "1000"}},
		{"bad cache size", with("b16", func(n *node) { n.args = append(n.args, "--cache-size", "plenty") }), []string{"cache-size", "plenty"}},
		{"listening on all without --insecure", with("b17", func(n *node) { n.args = append(n.args, "--listen", "0.0.0.0:0") }), []string{"insecure"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			said := refused(t, tt.node)
			for _, words := range tt.says {
				require.Contains(t, said, words)
			}
		})
	}
	require.Equal(t, "a", a.status().Node.Name, "the running node was disturbed")
}

func TestACommandFindsItsNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.start("a")
	registered(t, n, "d/f", 10, 1)

	with := func(env string, args ...string) result {
		cmd := n.command(args...)
		if env != "" {
			cmd.Env = append(cmd.Env, env)
		}
		return runCmd(t, commandLimit, cmd)
	}
	require.Zero(t, with("", "stat", n.path("d/f")).code, "by a path under the mount")
	require.Zero(t, with("", "status").code, "the only one running here")
	require.Zero(t, with("P2PFS_NODE="+n.cache, "status").code, "by P2PFS_NODE")
	require.Zero(t, with("", "status", "--node", n.cache).code, "by its cache directory")
	r := with("", "status", "--node", c.src("nowhere"))
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "nowhere")
	r = with("", "stat", "/etc/passwd")
	require.NotZero(t, r.code, "a path outside every mount")
	require.Zero(t, with("", "version", "--json").code)
	require.Zero(t, with("", "--help").code)

	in := n.command("ls")
	in.Dir = n.path("d")
	r = runCmd(t, commandLimit, in)
	require.Zero(t, r.code, r.String())
}

func TestListStatAndPeersShowWhatIsThere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	registered(t, a, "d/f", smallChunk+1, 1)

	require.Contains(t, a.must("ls", a.path("d")), "f")
	require.Contains(t, b.must("ls", "-l", "-r", b.mnt), "f")
	st := b.stat("d/f")
	require.NotEmpty(t, st.ID)
	require.EqualValues(t, smallChunk+1, st.Size)
	require.EqualValues(t, smallChunk, st.ChunkSize)
	require.Zero(t, st.LocalBytes)
	require.Len(t, st.Providers, 1)
	require.Equal(t, a.status().Node.ID, st.Providers[0].Node)
	require.Positive(t, b.status().Cache.FreeBytes)
	require.True(t, st.Providers[0].Complete)
	require.EqualValues(t, smallChunk+1, a.stat("d/f").LocalBytes, "the registered file is all here")

	b.must("get", b.path("d/f"))
	require.EqualValues(t, smallChunk+1, b.stat("d/f").LocalBytes)
	eventually(t, 2*time.Minute, "b is announced as complete", func() bool {
		for _, p := range a.stat("d/f").Providers {
			if p.Node == b.status().Node.ID && p.Complete {
				return true
			}
		}
		return false
	})
	out := c.src("out")
	b.must("get", b.path("d/f"), "-o", out)
	must(t, "cmp", out, c.src("d/f"))
	eventually(t, 2*time.Minute, "a is told as a peer", func() bool { // it writes that it runs once it runs
		return strings.Contains(b.must("peers", "--json"), a.status().Node.ID)
	})

	b.must("drop", b.path("d/f"))
	require.Zero(t, b.stat("d/f").LocalBytes)
	must(t, "cmp", c.src("d/f"), b.path("d/f"))

	require.NotZero(t, b.p2pfs("stat", b.path("d/no such")).code)
	a.must("unregister", a.path("d/f"))
	eventually(t, time.Minute, "gone on b", func() bool { return run(t, "stat", b.path("d/f")).code != 0 })
	require.FileExists(t, c.src("d/f"), "unregister touched the source")
}
