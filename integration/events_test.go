package integration

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// event is what events --json prints.
type event struct {
	Type, Path, From, Kind, Object, Replaced, Node, Position, Note string
	NodeName                                                       string `json:"node_name"`
	Size                                                           *int64
	Time                                                           time.Time
}

// short tells an event in few words.
func (e event) short() string {
	words := []string{e.Type}
	for _, w := range []string{e.From, e.Path} {
		if w != "" {
			words = append(words, w)
		}
	}
	if e.Type == "node-up" || e.Type == "node-down" {
		words = append(words, e.NodeName)
	}
	return strings.Join(words, " ")
}

func parseEvents(t *testing.T, out []byte) (events []event) {
	for line := range strings.Lines(string(out)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is still being written
		}
		var e event
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		require.NotZero(t, e.Time, line)
		events = append(events, e)
	}
	return events
}

// shorts tells events in few words, those of providers left out.
func shorts(events []event) (out []string) {
	for _, e := range events {
		if !strings.HasPrefix(e.Type, "provider-") {
			out = append(out, e.short())
		}
	}
	return out
}

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf []byte
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	return len(p), nil
}

func (b *lockedBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.buf)
}

// following is a running p2pfs events --follow --json.
type following struct {
	*running
	t   *testing.T
	out *lockedBuffer
}

// eventBound is how long events may take on a busy machine.
const eventBound = 2 * time.Minute

// calm are the flags of nodes that a busy machine does not make go down and up in
// the middle of the events, nor the store.
var calm = []string{"--provider-ttl=2m", "--meta-timeout=15s"}

// follow starts following on a node and waits until what happens is told.
func (n *node) follow(args ...string) *following {
	n.t.Helper()
	out := &lockedBuffer{}
	cmd := n.command(append([]string{"events", "--follow", "--json", "--node", n.cache}, args...)...)
	cmd.Stdout = out
	f := &following{running: launch(n.t, cmd), t: n.t, out: out}
	if !has(args, "--from") {
		i := 0
		eventually(n.t, eventBound, "the events are followed", func() bool {
			i++
			must(n.t, "mkdir", n.path("follow-"+n.name+itoa(i)))
			return len(f.events()) > 0
		})
	}
	return f
}

func (f *following) events() []event { return parseEvents(f.t, f.out.bytes()) }

// await waits for the events after those seen, told in few words.
func (f *following) await(want ...string) []event {
	f.t.Helper()
	var got []event
	deadline := time.Now().Add(eventBound)
	for {
		got = slices.DeleteFunc(f.events(), func(e event) bool { return strings.HasPrefix(e.Path, "follow") })
		if s := shorts(got); len(s) >= len(want) || time.Now().After(deadline) {
			require.Equal(f.t, want, s, "events: %s", f.errOut)
			return got
		}
		f.wait(50 * time.Millisecond)
	}
}

// find returns the only event of a type.
func find(t *testing.T, events []event, short string) event {
	t.Helper()
	i := slices.IndexFunc(events, func(e event) bool { return e.short() == short })
	require.GreaterOrEqual(t, i, 0, "no %q in %v", short, events)
	return events[i]
}

// happenings does what makes every kind of event, and returns those of names.
func happenings(t *testing.T, a, b *node) []string {
	t.Helper()
	src := a.c.src("tree")
	require.NoError(t, os.MkdirAll(src+"/deep", 0o755))
	require.NoError(t, os.WriteFile(src+"/f", []byte("in a tree"), 0o644))
	require.NoError(t, os.WriteFile(src+"/deep/g", []byte("deeper"), 0o644))
	must(t, "mkdir", a.path("d"))
	must(t, "sh", "-c", "echo one > "+b.path("d/x"))
	must(t, "sh", "-c", "echo three > "+a.path("d/x"))
	must(t, "chmod", "600", a.path("d/x"))
	must(t, "mv", a.path("d/x"), a.path("d/y"))
	must(t, "mkdir", b.path("e"))
	must(t, "mv", b.path("d/y"), b.path("e/z"))
	must(t, "mv", a.path("e"), a.path("d/e"))
	a.register(src, "tree")
	must(t, "ln", "-s", "z", a.path("d/e/link"))
	must(t, "rm", b.path("d/e/z"), b.path("d/e/link"))
	must(t, "rmdir", b.path("d/e"))
	a.must("unregister", a.path("tree"))
	a.register(src, "kept")
	return []string{
		"mkdir d", "publish d/x", "replace d/x", "rename d/x d/y", "mkdir e", "rename d/y e/z", "rename e d/e",
		"mkdir tree", "mkdir tree/deep", "publish tree/deep/g", "publish tree/f", "publish d/e/link",
		"unpublish d/e/z", "unpublish d/e/link", "rmdir d/e",
	}
}

// TestEventsOnEtcd (E1, E2): all kinds of events with what they say, from now on and
// from positions, over an outage of the store, until the node ends.
func TestEventsOnEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := ownStore(t, c)
	a, b := c.start("a", calm...), c.start("b", calm...)
	f := a.follow()
	want := happenings(t, a, b)
	want = append(want, "unpublish tree/deep/g", "rmdir tree/deep", "unpublish tree/f", "rmdir tree",
		"mkdir kept", "mkdir kept/deep", "publish kept/deep/g", "publish kept/f")
	got := f.await(want...)
	tell(t, got)

	// From the middle, and within a change of several events.
	for _, at := range []string{"replace d/x", "rmdir tree", "mkdir kept", "mkdir kept/deep"} {
		from := find(t, got, at).Position
		i := slices.Index(want, at)
		past := parseEvents(t, []byte(a.must("events", "--json", "--from", from)))
		require.Equal(t, want[i+1:], shorts(past), "after %q", at)
	}
	require.Contains(t, a.must("events", "--under", a.path("d")), "rename /d/y -> /e/z size=6 object=")
	past := parseEvents(t, []byte(a.must("events", "--json")))
	require.Contains(t, shorts(past), "node-up a")

	s.stop()
	f.await(append(want, "store-down")...)
	require.NoError(t, s.start())
	want = append(want, "store-down", "store-up")
	f.await(want...)
	eventually(t, eventBound, "names can be made again", func() bool { return run(t, "mkdir", "-p", b.path("again")).code == 0 }) // O2: what failed may have happened
	b.stop()
	f.await(append(want, "mkdir again", "node-down b")...)

	// What was compacted is no more, and that is said.
	must(t, "etcdctl", append(patience(), "--endpoints", strings.TrimPrefix(s.url(), "etcd://"), "compact", find(t, got, "rmdir tree").Position)...)
	r := a.p2pfs("events", "--from", find(t, got, "replace d/x").Position)
	require.Equal(t, 1, r.code, r.String())
	require.Contains(t, r.err, "events were lost")
	require.Contains(t, r.err, "is still known")
	require.Contains(t, a.p2pfs("events", "--from", "yesterday").err, "is not a revision")

	f.signal(syscall.SIGINT)
	require.Zero(t, f.finish(t, commandLimit).code)
	f = a.follow("--from", "oldest")
	eventually(t, eventBound, "events", func() bool { return len(f.events()) > 0 })
	a.must("umount", a.mnt)
	require.Zero(t, f.finish(t, commandLimit).code, f.errOut)
}

// tell checks what the events of happenings say beside type and path.
func tell(t *testing.T, got []event) {
	t.Helper()
	pub, rep := find(t, got, "publish d/x"), find(t, got, "replace d/x")
	require.Equal(t, int64(4), *pub.Size)
	require.Equal(t, "b", pub.NodeName)
	require.Equal(t, int64(6), *rep.Size)
	require.Equal(t, "a", rep.NodeName)
	require.Equal(t, pub.Object, rep.Replaced)
	require.Equal(t, rep.Object, find(t, got, "rename d/y e/z").Object)
	gone := find(t, got, "unpublish d/e/z")
	require.Equal(t, rep.Object, gone.Object)
	require.Equal(t, int64(6), *gone.Size)
	require.Equal(t, "a", find(t, got, "publish tree/deep/g").NodeName)
	require.True(t, slices.ContainsFunc(got, func(e event) bool { return e.Type == "provider-up" && e.NodeName == "b" }))
}

// TestEventsOnRedis: the same, from the stream and, on a node that has none,
// from the subscription; a node that is killed goes down.
func TestEventsOnRedis(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := ownRedis(t, c)
	a, plain := c.start("a", append(calm, "--stream")...), c.start("plain", calm...)
	b := c.start("b", "--stream", "--stream-maxlen=100", "--provider-ttl=20s", "--meta-timeout=15s")
	f, g := a.follow(), plain.follow()
	want := happenings(t, a, b)
	want = append(want, "unpublish tree/deep/g", "rmdir tree/deep", "unpublish tree/f", "rmdir tree",
		"mkdir kept", "mkdir kept/deep", "publish kept/deep/g", "publish kept/f")
	got := f.await(want...)
	tell(t, got)
	tell(t, g.await(want...))
	for _, at := range []string{"replace d/x", "rmdir tree", "mkdir kept", "mkdir kept/deep"} {
		past := parseEvents(t, []byte(a.must("events", "--json", "--from", find(t, got, at).Position)))
		require.Equal(t, want[slices.Index(want, at)+1:], shorts(past), "after %q", at)
	}
	r := plain.p2pfs("events")
	require.Equal(t, 1, r.code, r.String())
	require.Contains(t, r.err, "--stream")

	b.kill()
	want = append(want, "node-down b")
	f.await(want...)
	g.await(want...)

	s.proc.kill()
	down := append(want, "store-down")
	f.await(down...)
	g.await(down...)
	s.start()
	f.await(append(down, "store-up")...)
	g.await(append(down, "store-up", "gap")...)
}
