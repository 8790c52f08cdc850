package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (c *fakeControl) Warm(r *nodepb.WarmRequest, s grpc.ServerStreamingServer[nodepb.WarmReply]) error {
	c.got(r)
	for _, w := range c.warm {
		if err := s.Send(w); err != nil {
			return err
		}
	}
	return c.fail
}

func (c *fakeControl) Pin(_ context.Context, r *nodepb.PinRequest) (*nodepb.PinReply, error) {
	c.got(r)
	return &nodepb.PinReply{Files: 2, Bytes: 2 << 30, Changed: 1, LocalBytes: 1 << 20}, c.fail
}

func (c *fakeControl) Trace(r *nodepb.TraceRequest, s grpc.ServerStreamingServer[nodepb.TraceReply]) error {
	c.got(r)
	for _, e := range c.traced {
		if err := s.Send(e); err != nil {
			return err
		}
	}
	return c.fail
}

func warmFile(path string, from int32, inside string, size int64, why string) *nodepb.WarmReply {
	return &nodepb.WarmReply{File: &nodepb.WarmReply_File{Path: []byte(path), From: from, Inside: []byte(inside), Size: size, Error: why}}
}

func TestWarmSavesWhatCameAndNamesWhatFailed(t *testing.T) {
	c := &fakeControl{}
	mnt := at(t, c)
	for _, f := range []string{"m/a", "m/sub/b", "one"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(mnt, f)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(mnt, f), []byte(f), 0o640))
	}
	stamp := time.Unix(1_600_000_000, 0)
	require.NoError(t, os.Chtimes(filepath.Join(mnt, "m/a"), stamp, stamp))
	out := filepath.Join(t.TempDir(), "new", "dir")
	c.warm = []*nodepb.WarmReply{
		{Bytes: 1, BytesTotal: 9}, warmFile("m/a", 0, "a", 3, ""), warmFile("m/sub/b", 0, "sub/b", 7, ""), warmFile("one", 1, "", 3, ""), {Done: true},
	}
	r := inProcess(t, "warm", mnt+"/m", mnt+"/one", "--save-dir", out, "--pin", "--verify", "--concurrency", "3", "--rank", "1", "--world-size", "2")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "3 files here and verified, pinned, copied to "+out+": 13 B, in ")
	req := c.lastRequest().(*nodepb.WarmRequest)
	require.Equal(t, [][]byte{[]byte("m"), []byte("one")}, req.GetPaths())
	require.True(t, req.GetPin() && req.GetVerify() && req.GetConcurrency() == 3 && req.GetRank() == 1 && req.GetWorldSize() == 2)
	for _, f := range []string{"m/a", "m/sub/b", "one"} {
		got, err := os.ReadFile(filepath.Join(out, f))
		require.NoError(t, err)
		require.Equal(t, f, string(got))
	}
	fi, err := os.Stat(filepath.Join(out, "m/a"))
	require.NoError(t, err)
	require.True(t, fi.ModTime().Equal(stamp))
	require.Equal(t, os.FileMode(0o640), fi.Mode())

	// One fails at the node and one cannot be copied: the rest is done.
	c.warm = []*nodepb.WarmReply{
		warmFile("m/a", 0, "a", 3, ""), warmFile("m/bad", 0, "bad", 7, "no reachable provider"), warmFile("m/gone", 0, "gone", 3, ""), {Done: true},
	}
	r = inProcess(t, "warm", mnt+"/m", "--save-dir", out)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "1 file here")
	require.Contains(t, r.err, "p2pfs: "+mnt+"/m/bad: no reachable provider\n")
	require.Contains(t, r.err, mnt+"/m/gone")
	require.Contains(t, r.err, "warm: 2 files failed")
	names, err := filepath.Glob(filepath.Join(out, "m", ".*"))
	require.NoError(t, err)
	require.Empty(t, names, "a copy that failed leaves nothing")

	v := decode(t, inProcess(t, "warm", mnt+"/m", "--json").out)
	require.Equal(t, 1.0, field(t, v, "failed"))
	bad := field(t, v, "failures").([]any)
	require.Equal(t, mnt+"/m/bad", field(t, bad[0], "path"))
}

func TestWarmEndsWithACodeThatSaysWhy(t *testing.T) {
	c := &fakeControl{}
	mnt := at(t, c)
	gone := warmFile("x", 0, "", 0, `no "/x" in the cluster`)
	gone.File.NotFound = true
	c.warm = []*nodepb.WarmReply{gone, {Done: true}}
	require.Equal(t, exitNotFound, inProcess(t, "warm", mnt+"/x").code)
	c.warm = []*nodepb.WarmReply{gone, warmFile("y", 0, "", 0, "broken"), {Done: true}}
	require.Equal(t, exitFailed, inProcess(t, "warm", mnt+"/x", mnt+"/y").code)
	c.warm = []*nodepb.WarmReply{warmFile("y", 0, "", 0, "")}
	r := inProcess(t, "warm", mnt+"/y")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "before it was done")
	c.warm, c.fail = nil, status.Error(codes.ResourceExhausted, "no space in the cache")
	r = inProcess(t, "warm", mnt+"/y")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "no space in the cache")
	r = inProcess(t, "warm", mnt+"/a/m", mnt+"/b/m", "--save-dir", t.TempDir())
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "would both be saved as")
}

func TestPinAndUnpin(t *testing.T) {
	c := &fakeControl{}
	mnt := at(t, c)
	require.Equal(t, "pinned 2 files, 2 GiB, of which 1 MiB is here\n", inProcess(t, "pin", mnt+"/a", mnt+"/b").out)
	require.Len(t, c.lastRequest().(*nodepb.PinRequest).GetPaths(), 2)
	r := inProcess(t, "unpin", mnt+"/a", "--json")
	require.True(t, c.lastRequest().(*nodepb.PinRequest).GetUnpin())
	require.Equal(t, 1.0, field(t, decode(t, r.out), "changed"))
	c.fail = status.Error(codes.NotFound, "no \"/a\" in the cluster")
	require.Equal(t, exitNotFound, inProcess(t, "pin", mnt+"/a").code)
}

func TestTrace(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.Local)
	c := &fakeControl{traced: []*nodepb.TraceReply{{Forgotten: 3, Events: []*nodepb.TraceEvent{
		{Block: 0, Node: "00ff00ff00", Name: "gpu1", StartedUnixNs: when.UnixNano(), TookNs: 20_000_000, Bytes: 4 << 20, Demand: true},
		{Block: 12, Node: "aa", Name: "gpu2", StartedUnixNs: when.UnixNano(), TookNs: 1_000_000_000, Hedge: true, Error: "reset"},
	}}}}
	mnt := at(t, c)
	r := inProcess(t, "trace", mnt+"/a")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, `BLOCK  FROM  NODE      ASKED AT      TOOK     WHY          CAME
0      gpu1  00ff00ff  03:04:05.600  20 ms    read         4 MiB
12     gpu2  aa        03:04:05.600  1000 ms  ahead, late  reset

3 earlier requests of this node, for whatever files, are no longer remembered
`, r.out)
	v := decode(t, inProcess(t, "trace", mnt+"/a", "--json").out)
	all := field(t, v, "requests").([]any)
	require.Len(t, all, 2)
	require.Equal(t, 12.0, field(t, all[1], "block"))
	require.Equal(t, true, field(t, all[1], "late"))
	r = inProcess(t, "trace", mnt+"/a", "--follow")
	require.True(t, c.lastRequest().(*nodepb.TraceRequest).GetFollow())
	require.Contains(t, r.out, "gpu1")
}
