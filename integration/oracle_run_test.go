package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/integration/oracle"
)

// Small sizes: every edge of block and chunk is met with a few KiB.
const (
	oracleBlock = 4 << 10
	oracleChunk = 3 * oracleBlock
)

// oracleTimeout is what a step that finds no store takes. What does find it must not
// take that long on a machine that is busy, elections included.
func oracleTimeout(store string) string {
	if store == "etcd" || store == "redis" {
		return "5s"
	}
	return "10s"
}

// oracleRun is a cluster and the model of what it may show.
type oracleRun struct {
	t     *testing.T
	c     *cluster
	lab   *netlab
	store *netStore
	nodes []*oracleNode
	byID  map[string]oracle.Node // of running nodes
	model *oracle.Model

	sources map[string]string // digests of the registered files

	steps  []oracle.Step // done so far
	said   string        // by the last command
	stale  time.Duration // most that a stat was behind
	counts map[oracle.Kind]int
	took   map[oracle.Kind]time.Duration
	fails  map[oracle.Kind]int // that ended with something else than Done, as the model allows
	failed string              // what was wrong, without the steps
}

type oracleNode struct {
	*node
	self  oracle.Node
	host  *netHost
	agent *agent
	id    string
}

func newOracleRun(t *testing.T, store string) *oracleRun {
	t.Helper()
	r := &oracleRun{
		t: t, byID: map[string]oracle.Node{}, sources: map[string]string{}, model: oracle.NewModel(),
		counts: map[oracle.Kind]int{}, took: map[oracle.Kind]time.Duration{}, fails: map[oracle.Kind]int{},
	}
	t.Cleanup(func() { // before the first: said after all the logs, which are long
		if r.failed != "" {
			t.Log(r.failed)
		}
	})
	r.c, r.lab = newCluster(t, "--chunk-size="+itoa(oracleChunk), "--insecure", "--meta-timeout="+oracleTimeout(store)), newNetlab(t, oracle.Size)
	r.store = newNetStore(t, r.lab.stored, store, filepath.Join(r.c.dir, store))
	r.c.url = r.store.url()
	r.store.start()
	t.Cleanup(r.store.kill)
	for i, h := range r.lab.nodes {
		self := oracle.Node(i)
		n := &oracleNode{node: r.c.node(self.String(), "--listen="+r.lab.peerIP(i)+":7000"), self: self, host: h}
		n.agent = startAgent(t, n.mnt)
		r.nodes = append(r.nodes, n)
		r.launch(n)
	}
	t.Cleanup(func() { // while the store is there; how a daemon ends is shown elsewhere
		for _, n := range r.nodes {
			n.kill()
		}
	})
	for _, n := range r.nodes {
		r.ready(n)
	}
	return r
}

// launch starts a daemon in its namespace and does not wait.
func (r *oracleRun) launch(n *oracleNode) {
	r.t.Helper()
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(r.t, err)
	defer log.Close()
	cmd := n.host.command(world.binary, n.args...)
	cmd.Env = n.env()
	cmd.Stdout, cmd.Stderr = log, log
	n.proc, err = spawn(cmd)
	require.NoError(r.t, err)
}

func (r *oracleRun) ready(n *oracleNode) {
	r.t.Helper()
	soon(r.t, storeBound, "node "+n.name+" mounted", func() bool {
		require.True(r.t, n.proc.alive(), "node %s ended as it started: %s", n.name, tail(n.logPath(), 20))
		return mountType(n.mnt) == "fuse.p2pfs"
	})
	eventually(r.t, storeBound, "node "+n.name+" answers", func() bool { return n.p2pfs("status").code == 0 })
	if n.id != "" {
		delete(r.byID, n.id)
	}
	n.id = n.status().Node.ID
	r.byID[n.id] = n.self
}

// do does one step and tells the model how it ended.
func (r *oracleRun) do(s oracle.Step) error {
	r.steps = append(r.steps, s)
	r.counts[s.Do]++
	began := time.Now()
	defer func() { r.took[s.Do] += time.Since(began) }()
	if s.Do == oracle.Check {
		return r.check(s)
	}
	result := r.perform(s)
	if result != oracle.Done {
		r.fails[s.Do]++
	}
	if err := r.model.Take(s, result); err != nil {
		return err
	}
	switch s.Do {
	case oracle.Heal, oracle.Restart, oracle.RestartEmpty, oracle.StoreStart, oracle.StoreRestart, oracle.StoreWipe:
		r.gathered()
	}
	return r.glance(s, result)
}

func (r *oracleRun) perform(s oracle.Step) oracle.Result {
	r.t.Helper()
	n := r.nodes[s.Node]
	switch s.Do {
	case oracle.Register, oracle.Join, oracle.Replace:
		return r.register(n, s)
	case oracle.Unregister, oracle.Drop:
		args := []string{string(s.Do), n.path(s.Path)}
		if s.Force {
			args = append(args, "--force")
		} else if s.Do == oracle.Drop {
			r.announced(n, s.Path)
		}
		return r.commanded(n.p2pfs(args...))
	case oracle.Collect:
		return r.commanded(n.p2pfs("gc"))
	case oracle.Race:
		one, two := n.agent.ask(agentRequest{Step: &s}), s
		two.Seed++
		other := r.nodes[s.Other].agent.ask(agentRequest{Step: &two})
		result := one.wait().Result
		if also := other.wait().Result; result == oracle.Done {
			return also
		}
		return result
	case oracle.Torn:
		p := n.agent.ask(agentRequest{Step: &s})
		time.Sleep(time.Duration(s.Delay) * time.Microsecond) // the fault comes at any time
		n.kill()
		if result := p.wait().Result; result == oracle.Done {
			return oracle.Done
		}
		return oracle.Broken
	case oracle.Kill:
		n.kill()
	case oracle.RestartEmpty:
		require.NoError(r.t, os.RemoveAll(n.cache))
		r.launch(n)
		r.ready(n)
	case oracle.Restart:
		r.launch(n)
		r.ready(n)
		if r.model.Lives && r.model.Store.Has(s.Node) {
			r.settled(n)
		}
	case oracle.CutStore:
		r.lab.cut(n.host, "store")
	case oracle.CutPeers:
		r.lab.cut(n.host, "peers")
	case oracle.Heal:
		r.heal(n)
	case oracle.StoreStop:
		r.store.stop()
	case oracle.StoreRestart, oracle.StoreStart, oracle.StoreWipe:
		r.bringBack(s.Do)
		for _, n := range r.nodes {
			if r.model.Up.Has(n.self) && r.model.Store.Has(n.self) {
				r.settled(n)
			}
		}
	case oracle.Recover:
		return r.recover(n, s)
	default:
		return n.agent.ask(agentRequest{Step: &s}).wait().Result
	}
	return oracle.Done
}

// bringBack brings the store back, or takes it away and brings it back.
func (r *oracleRun) bringBack(how oracle.Kind) {
	r.t.Helper()
	switch how {
	case oracle.StoreRestart:
		r.store.restart()
	case oracle.StoreWipe:
		r.store.stop()
		require.NoError(r.t, os.RemoveAll(r.store.dir))
		fallthrough
	default:
		r.store.start()
	}
}

func (r *oracleRun) commanded(res result) oracle.Result {
	r.said = res.String()
	if res.code != 0 {
		return oracle.Refused
	}
	return oracle.Done
}

func (r *oracleRun) register(n *oracleNode, s oracle.Step) oracle.Result {
	src := r.c.src(fmt.Sprintf("%d-%s", len(r.steps), n.name))
	require.NoError(r.t, os.WriteFile(src, s.Bytes(), 0o644))
	r.sources[src] = oracle.NewData(s.Bytes()).Sum
	args := []string{"register", src, n.path(s.Path)}
	if s.Do == oracle.Replace {
		args = append(args, "--replace")
	}
	return r.commanded(n.p2pfs(args...))
}

func (r *oracleRun) heal(n *oracleNode) {
	if !r.model.Store.Has(n.self) {
		r.lab.heal(n.host, "store")
	}
	if !r.model.Peers.Has(n.self) {
		r.lab.heal(n.host, "peers")
	}
	if r.model.Up.Has(n.self) && r.model.Lives {
		r.settled(n)
	}
}

// recover publishes or discards what a node could not publish of a name. What
// was not closed is discarded always: nobody knows what of it was written.
func (r *oracleRun) recover(n *oracleNode, s oracle.Step) oracle.Result {
	var list struct {
		Files []struct{ ID, Path, State string }
	}
	n.waitReleased() // what failed at close is left then
	for range 20 {
		n.json(&list, "recover")
		unknown, here := false, false // of the paths
		for _, f := range list.Files {
			unknown, here = unknown || strings.HasPrefix(f.Path, "?"), here || f.Path == s.Path
		}
		if here || !unknown {
			break
		}
		time.Sleep(250 * time.Millisecond) // a store that is just back does not answer yet, or the directory is gone
	}
	result := oracle.Nothing
	for _, f := range list.Files {
		if f.Path != s.Path {
			continue
		}
		args := []string{"recover", "--discard", f.ID}
		if s.Mode == 1 && f.State == "closed" {
			args = []string{"recover", "--replace", f.ID}
		}
		result = r.commanded(n.p2pfs(args...))
	}
	return result
}

// staleBound is how long a stat elsewhere may go by what the kernel remembers, on
// a machine that is busy.
const staleBound = 15 * time.Second

// glance looks at the name of a step that was just done, on another node: an
// open finds what is there now (R1, N1), a stat soon does.
func (r *oracleRun) glance(s oracle.Step, result oracle.Result) error {
	path := s.Path
	if s.Do == oracle.Rename {
		path = s.To
	}
	e, sure := r.model.Certain(path)
	at := oracle.Node(s.Seed / 4 % oracle.Size)
	if result != oracle.Done || path == "" || !sure || s.Seed%4 > 1 || !r.model.Connected().Has(at) {
		return nil
	}
	agent := r.nodes[at].agent
	if s.Seed%4 == 0 && (e == nil || e.Kind == oracle.File && r.model.Readable(at, path)) {
		r.model.Read(at, path)
		if diff := oracle.At(e, agent.ask(agentRequest{Open: path}).wait().Names[path]); diff != "" {
			return fmt.Errorf("an open right after it finds, for %q on %s: %s", path, at, diff)
		}
		return nil
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		diff := oracle.At(e, agent.ask(agentRequest{Look: path}).wait().Names[path])
		late := time.Since(began)
		if diff == "" {
			r.stale = max(r.stale, late)
			return nil
		}
		if late > staleBound {
			return fmt.Errorf("a stat %v after it finds, for %q on %s: %s\n%s", late, path, at, diff, r.outlived(e, path, at))
		}
	}
}

// outlived says of a stat that was old for too long whether time heals it, and
// what its daemon and those of the other nodes know.
func (r *oracleRun) outlived(e *oracle.Entry, path string, at oracle.Node) string {
	n := r.nodes[at]
	said := "the daemon says " + n.p2pfs("stat", n.path(path), "--json").String() + "\nand of itself " + n.p2pfs("status", "--json").String()
	for _, other := range r.nodes {
		if other != n {
			said += "\n" + other.name + " says " + other.p2pfs("stat", other.path(path), "--json").String()
		}
	}
	for began := time.Now(); time.Since(began) < quietBound; time.Sleep(10 * time.Millisecond) {
		if oracle.At(e, n.agent.ask(agentRequest{Look: path}).wait().Names[path]) == "" {
			return fmt.Sprintf("it is right %v later; %s", time.Since(began), said)
		}
	}
	return fmt.Sprintf("it is still so %v later; %s", quietBound, said)
}

// report logs what a failure needs to be seen again.
func (r *oracleRun) report(seed uint64, err error) {
	r.t.Helper()
	var lines []string
	for _, s := range r.steps {
		lines = append(lines, s.String())
	}
	file := filepath.Join("..", "build", fmt.Sprintf("oracle-%s-%d.steps", r.store.kind, seed))
	where := "run them again with: make oracle STORE=" + r.store.kind + " REPLAY=" + strings.TrimPrefix(file, "../")
	if werr := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); werr != nil {
		where = werr.Error()
	}
	r.failed = fmt.Sprintf("seed %d, step %d: %s\n%v\nthe last command said: %s\nthe steps: %s\n%s",
		seed, len(r.steps), r.steps[len(r.steps)-1], err, r.said, where, r.keepJournals(strings.TrimSuffix(file, ".steps")))
	r.t.Fatalf("the steps:\n%s", strings.Join(lines, "\n"))
}

// keepJournals copies what the nodes know of names into a directory, and says so.
func (r *oracleRun) keepJournals(dir string) string {
	r.t.Helper()
	for _, n := range r.nodes {
		to := filepath.Join(dir, n.name)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err.Error()
		}
		files, _ := filepath.Glob(filepath.Join(n.cache, "journal*"))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o644)
			}
			if err != nil {
				return err.Error()
			}
		}
	}
	return "the nodes' journals of names: " + strings.TrimPrefix(dir, "../")
}

// envNumber is a number from the environment.
func envNumber(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 10, 64)
	require.NoError(t, err, name)
	return n
}
