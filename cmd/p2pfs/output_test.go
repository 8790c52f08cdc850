package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/running"
)

// decode reads JSON strictly: one value and nothing after it.
func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	var v map[string]any
	require.NoError(t, d.Decode(&v), text)
	require.False(t, d.More(), text)
	return v
}

// at walks "a.b" through decoded JSON.
func field(t *testing.T, v any, path string) any {
	t.Helper()
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		require.True(t, ok, path)
		require.Contains(t, m, name, path)
		v = m[name]
	}
	return v
}

var fakeStatus = &nodepb.StatusReply{
	Node: &nodepb.StatusReply_Node{
		Id: "00ff", Name: "gpu1", Zone: "rack1", Incarnation: 7, Pid: 42, Version: "v1", Addrs: map[string]string{"tcp": "10.0.0.1:7070"},
		StartedUnixNs: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano(),
	},
	Meta:  &nodepb.StatusReply_Meta{Url: "etcd://127.0.0.1:2379", State: "ok", Cluster: "c1", Embedded: true},
	Mount: &nodepb.StatusReply_Mount{Mountpoint: []byte("/mnt/models"), Passthrough: "on", Consistency: "open", OpenFiles: 1},
	Cache: &nodepb.StatusReply_Cache{
		UsedBytes: 3 << 30, LimitBytes: 10 << 30, Objects: 4, Complete: 3, InPlace: 1,
		Roots: []*nodepb.StatusReply_Root{{Dir: []byte("/c"), UsedBytes: 3 << 30, State: "ok"}},
	},
	Counters: map[string]uint64{"received_bytes": 1 << 20, "sent_bytes": 5, "blocks_fetched": 2, "fetch_errors": 0},
	Warnings: []string{"disk is slow"},
}

func TestStatus(t *testing.T) {
	at(t, &fakeControl{status: fakeStatus})
	r := inProcess(t, "status")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, `node            gpu1 (00ff)
running         since 2026-01-02T03:04:05Z, pid 42, version v1
zone            rack1
reached at      10.0.0.1:7070
metadata        etcd://127.0.0.1:2379 (ok, inside this node)
cluster         c1
mounted at      /mnt/models (consistency open, 1 open file)
passthrough     on
cache           3 GiB used, of 10 GiB; 4 objects: 3 complete, 1 registered in place
                /c: 3 GiB, ok
received        1 MiB from other nodes
sent            5 B to other nodes
blocks_fetched  2
warning         disk is slow
`, r.out)

	r = inProcess(t, "status", "--json")
	require.Equal(t, exitOK, r.code, r.err)
	v := decode(t, r.out)
	for path, want := range map[string]any{
		"node.id": "00ff", "node.name": "gpu1", "node.addrs.tcp": "10.0.0.1:7070", "node.pid": 42.0, "meta.url": "etcd://127.0.0.1:2379",
		"meta.state": "ok", "meta.embedded": true, "mount.mountpoint": "/mnt/models", "mount.passthrough": "on", "cache.used_bytes": float64(3 << 30),
		"counters.received_bytes": float64(1 << 20), "counters.sent_bytes": 5.0, "node.started": "2026-01-02T03:04:05Z",
	} {
		require.Equal(t, want, field(t, v, path), path)
	}
	root := field(t, v, "cache.roots").([]any)[0]
	require.Equal(t, "/c", field(t, root, "dir"))
}

func TestStatusOfAnEmptyAnswerHasItsFields(t *testing.T) {
	at(t, &fakeControl{status: &nodepb.StatusReply{}})
	v := decode(t, inProcess(t, "status", "--json").out)
	for _, path := range []string{"node.id", "node.name", "meta.url", "meta.state", "cache.used_bytes", "counters.received_bytes", "counters.sent_bytes"} {
		field(t, v, path)
	}
	require.Equal(t, exitOK, inProcess(t, "status").code)
}

var fakeStat = &nodepb.StatReply{
	Item: &nodepb.Item{
		Path: []byte("m/f\n"), Kind: "file", Size: 10 << 20, Mode: 0o640, Object: "abcd", State: "partial",
		MtimeNs: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano(),
	},
	ChunkSize: 64 << 20, BlockSize: 4 << 20, Blocks: 3, LocalBytes: 4 << 20, Set: "5e7", Inode: 1<<64 - 1,
	Providers: []*nodepb.StatReply_Provider{
		{Node: "00ff00ff00ff", Name: "gpu1", Complete: true, Keeper: true, Alive: true, Blocks: 3, Addrs: map[string]string{"tcp": "h:1"}},
		{Node: "aa", Blocks: 1, Self: true, Alive: true},
		{Node: "bb", Name: "gpu3"},
	},
}

func TestStat(t *testing.T) {
	t.Setenv("TZ", "UTC")
	c := &fakeControl{stat: fakeStat}
	mnt := at(t, c)
	r := inProcess(t, "stat", mnt+"/m/f\n")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, "m/f\n", string(c.lastRequest().(*nodepb.PathRequest).GetPath()))
	require.Contains(t, r.out, "size      10485760 (10 MiB)\n")
	require.Contains(t, r.out, "here      partial (4 MiB, 40%)\n")
	require.Contains(t, r.out, "blocks    3 of 4 MiB, chunks of 64 MiB\n")
	require.Contains(t, r.out, `
HELD BY  NODE      HOLDS  ROLE      STATE      ADDRESS
gpu1     00ff00ff  100%   keeper    alive      h:1
-        aa        33%    provider  this node  -
gpu3     bb        0%     provider  gone       -
`)

	r = inProcess(t, "--json", "stat", mnt+"/m/f\n")
	v := decode(t, r.out)
	for path, want := range map[string]any{
		"id": "abcd", "size": float64(10 << 20), "chunk_size": float64(64 << 20), "local_bytes": float64(4 << 20), "name": "f\n",
		"path": mnt + "/m/f\n", "kind": "file", "set": "5e7", "mode": "0640", "state": "partial", "mtime": "2026-01-02T03:04:05.000000006Z",
	} {
		require.Equal(t, want, field(t, v, path), path)
	}
	require.Contains(t, r.out, `"inode": 18446744073709551615`)
	p := field(t, v, "providers").([]any)
	require.Len(t, p, 3)
	require.Equal(t, "00ff00ff00ff", field(t, p[0], "node"))
	require.Equal(t, true, field(t, p[0], "complete"))
	require.Equal(t, false, field(t, p[1], "complete"))
}

func TestStatOfADirectoryAndOfWhatIsUnknown(t *testing.T) {
	c := &fakeControl{stat: &nodepb.StatReply{Item: &nodepb.Item{Kind: "dir", Mode: 0o755}, Inode: 1, Error: "store is down"}}
	mnt := at(t, c)
	r := inProcess(t, "stat", mnt)
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "kind      dir\n")
	require.Contains(t, r.out, "store is down")
	v := decode(t, inProcess(t, "stat", mnt, "--json").out)
	require.Equal(t, []any{}, field(t, v, "providers"))
	require.Equal(t, "store is down", field(t, v, "error"))
}

func TestLs(t *testing.T) {
	t.Setenv("TZ", "UTC")
	mtime := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	c := &fakeControl{items: []*nodepb.Item{
		{Path: []byte("z\xff"), Kind: "file", Size: 12345, Mode: 0o4711, MtimeNs: mtime, State: "complete", Object: "abcd", Uid: 4000000001, Gid: 4000000002},
		{Path: []byte("l"), Kind: "symlink", Mode: 0o777, MtimeNs: mtime, Target: []byte("../x\xff"), Uid: 4000000001, Gid: 4000000002},
		{Path: []byte("d"), Kind: "dir", Mode: 0o1755, MtimeNs: mtime, Uid: 4000000001, Gid: 4000000002},
	}}
	mnt := at(t, c)
	r := inProcess(t, "ls", mnt)
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, "d\nl\nz\xff\n", r.out, "bytes as they are, in their order")

	r = inProcess(t, "ls", "-l", "-r", mnt+"/sub")
	require.Equal(t, "drwxr-xr-t 4000000001 4000000002     0 2026-01-02 03:04 -        d\n"+
		"lrwxrwxrwx 4000000001 4000000002     0 2026-01-02 03:04 -        l -> ../x\xff\n"+
		"-rws--x--x 4000000001 4000000002 12345 2026-01-02 03:04 complete z\xff\n", r.out)
	req := c.lastRequest().(*nodepb.ListRequest)
	require.True(t, req.GetRecursive())
	require.Equal(t, "sub", string(req.GetPath()))

	v := decode(t, inProcess(t, "ls", "--json", mnt).out)
	require.Equal(t, mnt, field(t, v, "path"))
	e := field(t, v, "entries").([]any)
	require.Len(t, e, 3)
	require.Equal(t, "d", field(t, e[0], "name"))
	require.NotContains(t, e[0], "name_base64")
	require.Equal(t, "Li4veP8=", field(t, e[1], "target_base64"))
	require.Equal(t, "ev8=", field(t, e[2], "name_base64"))
	require.Equal(t, "4711", field(t, e[2], "mode"))

	c.items = nil
	require.Empty(t, inProcess(t, "ls", mnt).out)
	v = decode(t, inProcess(t, "ls", "--json").out)
	require.Equal(t, []any{}, field(t, v, "entries"))
	require.Equal(t, mnt, field(t, v, "path"))
}

func TestRegister(t *testing.T) {
	c := &fakeControl{progress: []*nodepb.Progress{{Files: 1, Bytes: 5}, {Files: 30, Bytes: 60 << 30, Done: true}}}
	mnt := at(t, c)
	wd, err := os.Getwd()
	require.NoError(t, err)
	for _, k := range []struct {
		name  string
		args  []string
		src   []string
		dest  string
		isDir bool
	}{
		{"absolute", []string{"/data/llama", mnt + "/llama"}, []string{"/data/llama"}, "llama", false},
		{"relative, as it is written", []string{"a/../b/", mnt + "/x/y"}, []string{wd + "/a/../b/"}, "x/y", false},
		{"into a directory", []string{"/a", mnt + "/x/"}, []string{"/a"}, "x", true},
		{"dot", []string{"/a", mnt + "/x/."}, []string{"/a"}, "x", true},
		{"several", []string{"/a", "/b\xff", mnt + "/x"}, []string{"/a", "/b\xff"}, "x", true},
		{"the mountpoint", []string{"/a", mnt}, []string{"/a"}, "", true},
	} {
		t.Run(k.name, func(t *testing.T) {
			r := inProcess(t, append([]string{"register"}, k.args...)...)
			require.Equal(t, exitOK, r.code, r.err)
			require.Contains(t, r.out, "registered 30 files, 60 GiB, at "+mnt)
			req := c.lastRequest().(*nodepb.RegisterRequest)
			var got []string
			for _, s := range req.GetSources() {
				got = append(got, string(s))
			}
			require.Equal(t, k.src, got)
			require.Equal(t, k.dest, string(req.GetDest()))
			require.Equal(t, k.isDir, req.GetDestIsDir())
		})
	}
	v := decode(t, inProcess(t, "register", "/a", mnt+"/x", "--json").out)
	require.Equal(t, 30.0, field(t, v, "files"))
	require.Equal(t, mnt+"/x", field(t, v, "destination"))

	c.progress = c.progress[:1]
	r := inProcess(t, "register", "/a", mnt+"/x")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "before it was done")
}

func TestUnregisterAndDrop(t *testing.T) {
	c := &fakeControl{}
	mnt := at(t, c)
	require.Equal(t, "unregistered "+mnt+"/a: 3 files\n", inProcess(t, "unregister", mnt+"/a").out)
	require.True(t, c.lastRequest().(*nodepb.PathRequest).GetRecursive())
	require.Equal(t, 3.0, field(t, decode(t, inProcess(t, "unregister", mnt+"/a", "--json").out), "files"))
	require.Equal(t, exitUsage, inProcess(t, "unregister", mnt).code, "everything at once")

	require.Equal(t, "dropped 1 file, 5 MiB freed\n", inProcess(t, "drop", mnt+"/a").out)
	require.Equal(t, float64(5<<20), field(t, decode(t, inProcess(t, "drop", mnt+"/a", "--json").out), "freed_bytes"))
}

func TestPeers(t *testing.T) {
	at(t, &fakeControl{peers: &nodepb.PeersReply{Peers: []*nodepb.PeersReply_Peer{
		{Node: "00ff00ff00", Name: "gpu1", Zone: "r1", Addrs: map[string]string{"tcp": "h:1"}, Alive: true, Self: true},
		{Node: "aa", Name: "gpu2", ReceivedBytes: 1 << 30, SentBytes: 5, Addrs: map[string]string{"tcp": "h:2", "verbs": "h:3"}, Alive: true},
		{Node: "bb", Error: "refused"},
		{Node: "cc", Name: "gpu3", Alive: true, Link: &nodepb.PeersReply_Link{Rate: 5 << 20, Weight: 0.25, InFlight: 3, Blocks: 9, Strikes: 2, PenaltyNs: 1_500_000_000, LastError: "reset"}},
	}}})
	r := inProcess(t, "peers")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, `NAME  NODE      ZONE  ADDRESS            STATE          RECEIVED FROM  SENT TO  RATE     WEIGHT  UNDER WAY  FAILED
gpu1  00ff00ff  r1    h:1                this node      -              -        -        -       -          -
gpu2  aa        -     tcp=h:2 verbs=h:3  alive          1 GiB          5 B      -        -       -          -
-     bb        -     -                  gone: refused  0 B            0 B      -        -       -          -
gpu3  cc        -     -                  alive          0 B            0 B      5 MiB/s  25%     3          2, not asked for 2 s
`, r.out)
	p := field(t, decode(t, inProcess(t, "peers", "--json").out), "peers").([]any)
	require.Equal(t, "00ff00ff00", field(t, p[0], "node"))
	require.Equal(t, float64(1<<30), field(t, p[1], "received_bytes"))
	require.NotContains(t, p[1], "link")
	require.Equal(t, 0.25, field(t, p[3], "link.weight"))
	require.Equal(t, 1.5, field(t, p[3], "link.penalty_seconds"))
}

func TestGet(t *testing.T) {
	c := &fakeControl{progress: []*nodepb.Progress{{Bytes: 2, BytesTotal: 5}, {Files: 1, FilesTotal: 1, Bytes: 5, BytesTotal: 5, Done: true}}}
	mnt := at(t, c)
	require.NoError(t, os.WriteFile(filepath.Join(mnt, "f"), []byte("12345"), 0o640))
	out := t.TempDir()

	r := inProcess(t, "get", mnt+"/f")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "f is here: 1 file, 5 B")

	for _, to := range []string{filepath.Join(out, "new"), out} {
		r = inProcess(t, "get", mnt+"/f", "-o", to, "--json")
		require.Equal(t, exitOK, r.code, r.err)
		require.Equal(t, 5.0, field(t, decode(t, r.out), "bytes"))
	}
	for _, name := range []string{"new", "f"} {
		b, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		require.Equal(t, "12345", string(b))
	}
	fi, err := os.Stat(filepath.Join(out, "new"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), fi.Mode().Perm())

	require.Equal(t, "12345", inProcess(t, "get", mnt+"/f", "-o", "-").out)
	require.Equal(t, exitOK, inProcess(t, "get", mnt+"/f", "-o", "/dev/null").code)
	require.Equal(t, exitUsage, inProcess(t, "get", mnt+"/f", "-o", "").code)

	require.NoError(t, os.Mkdir(filepath.Join(mnt, "d"), 0o755))
	r = inProcess(t, "get", mnt+"/d", "-o", filepath.Join(out, "d"))
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "single file")
	r = inProcess(t, "get", mnt+"/f", "-o", out+"/no/such")
	require.Equal(t, exitFailed, r.code)
	left, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, left, 2, "something was left behind")
}

func TestFailuresHaveTheirExitCodes(t *testing.T) {
	for _, c := range []struct {
		name string
		fail error
		code int
		says string
	}{
		{"not found", status.Error(codes.NotFound, `"/x": not found`), exitNotFound, `"/x": not found`},
		{"store down", status.Error(codes.Unavailable, "metadata store unreachable"), exitFailed, "metadata store unreachable"},
		{"taken", status.Error(codes.AlreadyExists, "already exists"), exitFailed, "already exists"},
		{"late", status.Error(codes.DeadlineExceeded, "x"), exitFailed, "did not answer in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mnt := at(t, &fakeControl{fail: c.fail, stat: &nodepb.StatReply{}})
			for _, cmd := range []string{"stat", "ls", "get", "drop", "unregister"} {
				r := inProcess(t, cmd, mnt+"/x")
				require.Equal(t, c.code, r.code, "%s: %s", cmd, r.err)
				require.Contains(t, r.err, c.says)
				require.Empty(t, r.out)
			}
			r := inProcess(t, "register", "/a", mnt+"/x")
			require.Equal(t, c.code, r.code)
		})
	}
}

func TestNoNode(t *testing.T) {
	t.Setenv(running.EnvDir, runtimeDir(t))
	t.Setenv(running.EnvNode, "")
	for _, args := range [][]string{{"status"}, {"peers"}, {"ls"}, {"stat", "/etc"}, {"register", "/a", "/etc/x"}, {"status", "--node", "/nowhere"}} {
		r := inProcess(t, args...)
		require.Equal(t, exitNoNode, r.code, "%q: %s", args, r.err)
		require.Contains(t, r.err, "no p2pfs node runs here")
	}
}
