package integration

import (
	"bufio"
	"encoding/json"
	"fmt"

	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Sizes that keep files small: three blocks a chunk.
const (
	smallBlock = 64 << 10
	smallChunk = 3 * smallBlock
)

var clusters atomic.Int64

// cluster is a set of nodes that share a metadata store.
type cluster struct {
	t     *testing.T
	dir   string
	url   string   // of the store; empty: the first node embeds one
	flags []string // of every node
	nodes map[string]*node
}

// newCluster makes a cluster on the shared etcd, under a prefix of its own,
// with small blocks unless the flags say otherwise.
func newCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	n := clusters.Add(1)
	c := &cluster{
		t:     t,
		dir:   filepath.Join(world.root, fmt.Sprint(n)),
		url:   fmt.Sprintf("%s/it%d", world.store.url(), n),
		flags: flags,
		nodes: map[string]*node{},
	}
	if !strings.Contains(strings.Join(flags, " "), "--chunk-size") {
		c.flags = append([]string{"--chunk-size", itoa(smallChunk)}, flags...)
	}
	require.NoError(t, os.Mkdir(c.dir, 0o755))
	t.Cleanup(c.clean)
	return c
}

// bigBlocks is the flag for the sizes that users have.
const bigBlocks = "--chunk-size=67108864"

func (c *cluster) clean() {
	for _, n := range c.nodes {
		n.end()
	}
	unmountBelow(c.dir)
	if c.t.Failed() {
		for _, n := range c.nodes {
			c.t.Logf("--- log of node %s:\n%s", n.name, tail(n.logPath(), 60))
		}
	}
	// Like all others by the spawner, one after the other: a child that is just being
	// made has what is open here, and a source with a writer is not registered.
	if r := run(c.t, "rm", "-rf", "--one-file-system", c.dir); r.code != 0 {
		c.t.Errorf("remove %s: %s", c.dir, r)
	}
}

// src returns a path for test data outside every mount.
func (c *cluster) src(name string) string {
	dir := filepath.Join(c.dir, "src")
	require.NoError(c.t, os.MkdirAll(dir, 0o755))
	return filepath.Join(dir, name)
}

// node is one daemon, running or not.
type node struct {
	t     *testing.T
	c     *cluster
	name  string
	dir   string
	cache string
	mnt   string
	args  []string
	proc  *process
	apart bool     // it runs in a mount namespace of its own, as do its commands
	under []string // a command that runs the daemon, with its arguments
}

// node describes a node and makes its directories; nothing is started.
func (c *cluster) node(name string, flags ...string) *node {
	c.t.Helper()
	dir := filepath.Join(c.dir, name)
	n := &node{t: c.t, c: c, name: name, dir: dir, cache: filepath.Join(dir, "cache"), mnt: filepath.Join(dir, "mnt")}
	require.NoError(c.t, os.MkdirAll(n.mnt, 0o755))
	n.args = []string{"mount"}
	if c.url != "" {
		n.args = append(n.args, c.url)
	}
	n.args = append(n.args, n.mnt, "--cache-dir", n.cache, "--name", name)
	all := append(append([]string{}, c.flags...), flags...)
	defaults := []string{"--listen=127.0.0.1:0", "--http=127.0.0.1:0"}
	if strings.HasPrefix(c.url, world.store.url()+"/") { // which nobody stops: an answer that is late is none that fails
		defaults = append(defaults, "--meta-timeout=60s")
	}
	for _, def := range defaults {
		if flag, _, _ := strings.Cut(def, "="); !has(all, flag) {
			all = append(all, def)
		}
	}
	n.args = append(n.args, all...)
	c.nodes[name] = n
	return n
}

// start describes a node, starts it and waits until it is ready.
func (c *cluster) start(name string, flags ...string) *node {
	c.t.Helper()
	n := c.node(name, flags...)
	n.start()
	return n
}

func has(args []string, flag string) bool {
	for _, a := range args {
		if a == flag || strings.HasPrefix(a, flag+"=") {
			return true
		}
	}
	return false
}

func (n *node) logPath() string { return filepath.Join(n.dir, "log") }

func (n *node) env() []string {
	return append(os.Environ(), "P2PFS_RUNTIME_DIR="+filepath.Join(n.dir, "run"))
}

// launch starts the daemon and does not wait.
func (n *node) launch() {
	n.t.Helper()
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(n.t, err)
	defer log.Close()
	cmd := n.daemon()
	cmd.Stdout, cmd.Stderr = log, log
	n.proc, err = spawn(cmd)
	require.NoError(n.t, err, "start node %s", n.name)
}

// daemon is the command that starts it.
func (n *node) daemon() *exec.Cmd {
	all := append(append([]string{}, n.under...), world.binary)
	all = append(all, n.args...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Env = n.env()
	return cmd
}

func (n *node) start() {
	n.t.Helper()
	n.launch()
	n.waitReady(readyBound)
}

// readyBound is how long a daemon may take to be ready, and endBound to end: an
// orderly end takes half a minute at most, of a machine that does not stand still.
const (
	readyBound = 2 * time.Minute
	endBound   = 90 * time.Second
)

func (n *node) waitReady(limit time.Duration) {
	n.t.Helper()
	eventually(n.t, limit, "node "+n.name+" ready", func() bool {
		require.True(n.t, n.proc.alive(), "node %s ended as it started: %s", n.name, tail(n.logPath(), 20))
		return mountType(n.mnt) != "" && n.p2pfs("status").code == 0
	})
}

// p2pfs runs a command that is told its node by --node.
func (n *node) p2pfs(args ...string) result {
	n.t.Helper()
	return runCmd(n.t, commandLimit, n.command(append(args, "--node", n.cache)...))
}

func (n *node) command(args ...string) *exec.Cmd {
	cmd := exec.Command(world.binary, args...)
	if n.apart {
		cmd = exec.Command("nsenter", append([]string{"--target", itoa(n.proc.pid()), "--mount", world.binary}, args...)...)
	}
	cmd.Env = n.env()
	return cmd
}

func (n *node) must(args ...string) string {
	n.t.Helper()
	r := n.p2pfs(args...)
	require.Zero(n.t, r.code, "p2pfs %q on %s: %s", args, n.name, r)
	return string(r.out)
}

func (n *node) register(src, dest string) {
	n.t.Helper()
	n.must("register", src, n.path(dest))
}

// path is a path below the mountpoint.
func (n *node) path(elem ...string) string { return n.mnt + "/" + strings.Join(elem, "/") }

// kill ends the daemon as a crash does, and detaches what it left.
func (n *node) kill() {
	n.t.Helper()
	n.proc.kill()
	_ = syscall.Unmount(n.mnt, syscall.MNT_DETACH)
}

// end stops the daemon in the orderly way, or else by force.
func (n *node) end() {
	if n.proc == nil || !n.proc.alive() {
		return
	}
	n.proc.signal(syscall.SIGCONT)
	n.proc.signal(syscall.SIGTERM)
	if !n.proc.wait(endBound) {
		n.t.Errorf("node %s did not end within %v of SIGTERM", n.name, endBound)
		n.proc.signal(syscall.SIGQUIT) // goroutines into the log
		n.proc.wait(5 * time.Second)
		n.proc.kill()
	}
}

// stop ends the daemon in the orderly way and requires that it does.
func (n *node) stop() {
	n.t.Helper()
	n.end()
	require.NoError(n.t, n.proc.err, "node %s: %s", n.name, tail(n.logPath(), 20))
	require.Empty(n.t, mountType(n.mnt), "still mounted")
}

// status holds the fields that other programs rely on.
type status struct {
	Node struct {
		ID    string            `json:"id"`
		Name  string            `json:"name"`
		Addrs map[string]string `json:"addrs"`
	} `json:"node"`
	Meta struct {
		URL      string `json:"url"`
		State    string `json:"state"`
		Error    string `json:"error"`
		Restored struct {
			At    time.Time `json:"at"`
			Why   string    `json:"why"`
			Names int64     `json:"names"`
		} `json:"restored"`
	} `json:"meta"`
	Mount struct {
		Passthrough string `json:"passthrough"`
		OpenFiles   int64  `json:"open_files"`
	} `json:"mount"`
	Cache struct {
		UsedBytes int64 `json:"used_bytes"`
		FreeBytes int64 `json:"free_space_bytes"`
	} `json:"cache"`
	Staging struct {
		Files  int64 `json:"files"`
		Bytes  int64 `json:"bytes"`
		Failed int64 `json:"failed"`
	} `json:"staging"`
	Counters map[string]int64 `json:"counters"`
}

func (n *node) status() status {
	n.t.Helper()
	var s status
	n.json(&s, "status")
	return s
}

func (n *node) received() int64 {
	n.t.Helper()
	return n.status().Counters["received_bytes"]
}

func (n *node) json(into any, args ...string) {
	n.t.Helper()
	out := n.must(append(args, "--json")...)
	require.NoError(n.t, json.Unmarshal([]byte(out), into), "p2pfs %q --json: %s", args, out)
}

// fileStat holds the fields of stat that other programs rely on.
type fileStat struct {
	ID         string `json:"id"`
	Size       int64  `json:"size"`
	ChunkSize  int64  `json:"chunk_size"`
	LocalBytes int64  `json:"local_bytes"`
	Providers  []struct {
		Node     string `json:"node"`
		Complete bool   `json:"complete"`
	} `json:"providers"`
}

func (n *node) stat(path string) fileStat {
	n.t.Helper()
	var s fileStat
	n.json(&s, "stat", n.path(path))
	return s
}

// waitLocal waits until all of a file is on the node.
func (n *node) waitLocal(path string) {
	n.t.Helper()
	eventually(n.t, 2*time.Minute, path+" complete on "+n.name, func() bool {
		s := n.stat(path)
		return s.LocalBytes == s.Size
	})
}

// waitReleased waits until nothing is open any more: the kernel tells a moment
// after a file was closed, or its process was killed.
func (n *node) waitReleased() {
	n.t.Helper()
	eventually(n.t, 2*time.Minute, "nothing is open on "+n.name, func() bool { return n.status().Mount.OpenFiles == 0 })
}

// waitHolder waits until other nodes hear from n that it holds all of a file: it
// tells the store behind the back of whoever fetches.
func (n *node) waitHolder(path, holder string) {
	n.t.Helper()
	eventually(n.t, 2*time.Minute, n.name+" knows that "+holder+" holds all of "+path, func() bool {
		for _, p := range n.copies(path).Providers {
			if p.Name == holder && p.Complete && p.Alive {
				return true
			}
		}
		return false
	})
}

// fetchedOnce requires that the node has received just so many bytes.
func (n *node) fetchedOnce(want int64, args ...any) {
	n.t.Helper()
	n.fetchedAtMost(want, 0, args...)
	require.GreaterOrEqual(n.t, n.received(), want, args...)
}

// fetchedAtMost requires that it has received no more since it had received some.
// What a fetch brought that was begun again, since nothing more came for seconds,
// counts besides: a block each.
func (n *node) fetchedAtMost(most, since int64, args ...any) {
	n.t.Helper()
	c := n.status().Counters
	most += smallBlock * (c["fetch_errors"] + c["blocks_duplicate"])
	require.LessOrEqual(n.t, c["received_bytes"]-since, most, args...)
}

// mountType returns the type of the file system mounted at path, "" if none.
func mountType(path string) string {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return ""
	}
	defer f.Close()
	kind := ""
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 2 && fields[1] == path {
			kind = fields[2]
		}
	}
	return kind
}

func unmountBelow(dir string) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	lines := strings.Split(string(data), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if f := strings.Fields(lines[i]); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
}

func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func itoa[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }
