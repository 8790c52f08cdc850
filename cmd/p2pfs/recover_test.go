package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/node/nodepb"
)

func (c *fakeControl) Recover(r *nodepb.RecoverRequest, s grpc.ServerStreamingServer[nodepb.RecoverReply]) error {
	c.got(r)
	for _, f := range c.waiting {
		if err := s.Send(f); err != nil {
			return err
		}
	}
	return c.fail
}

func TestRecover(t *testing.T) {
	c := &fakeControl{}
	point := at(t, c)
	r := inProcess(t, "recover")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, "nothing waits to be recovered\n", r.out)

	c.waiting = []*nodepb.RecoverReply{
		{Id: "00000000000000ff", Path: []byte("a/f"), Size: 5 << 20, State: "closed", Reason: "store down", WhenUnixNs: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()},
		{Id: "0000000000000001", Path: []byte("x\xff"), State: "open", Reason: "the node ended"},
	}
	r = inProcess(t, "recover")
	require.Equal(t, "ID                PATH  SIZE   WHEN                  STATE   WHY\n"+
		"00000000000000ff  /a/f  5 MiB  2026-01-02T03:04:05Z  closed  store down\n"+
		"0000000000000001  /x\xff   0 B    -                     open    the node ended\n", r.out)
	r = inProcess(t, "recover", "--json")
	v := decode(t, r.out)
	first := v["files"].([]any)[0]
	for path, want := range map[string]any{"id": "00000000000000ff", "path": "a/f", "size": float64(5 << 20), "when": "2026-01-02T03:04:05Z", "state": "closed", "reason": "store down"} {
		require.Equal(t, want, field(t, first, path), path)
	}

	c.waiting = []*nodepb.RecoverReply{{Id: "00000000000000ff", Path: []byte("a/f")}, {Id: "0000000000000001", Path: []byte("g"), Error: "a newer file has the name"}}
	c.fail = status.Error(codes.Unknown, "1 of 2 files were not recovered")
	r = inProcess(t, "recover", "--all", "--unclosed")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "published /a/f\nnot published /g (id 0000000000000001): a newer file has the name\n", r.out)
	require.Contains(t, r.err, "1 of 2 files")
	require.True(t, c.lastRequest().(*nodepb.RecoverRequest).GetUnclosed())

	c.fail = nil
	r = inProcess(t, "recover", point+"/a/f", "--to", point+"/b/g", "--replace")
	require.Equal(t, exitOK, r.code, r.err)
	req := c.lastRequest().(*nodepb.RecoverRequest)
	require.Equal(t, nodepb.RecoverRequest_PUBLISH, req.GetAction())
	require.Equal(t, [][]byte{[]byte("a/f")}, req.GetNames())
	require.Equal(t, "b/g", string(req.GetTo()))
	require.True(t, req.GetReplace())
	require.Equal(t, exitOK, inProcess(t, "recover", "--discard", "00000000000000ff").code)
	req = c.lastRequest().(*nodepb.RecoverRequest)
	require.Equal(t, nodepb.RecoverRequest_DISCARD, req.GetAction())
	require.Equal(t, "00000000000000ff", string(req.GetNames()[0]))
	require.Equal(t, exitOK, inProcess(t, "recover", "--out", "/tmp/x", point+"/a/f").code)
	require.Equal(t, "/tmp/x", string(c.lastRequest().(*nodepb.RecoverRequest).GetOut()))
}

func TestRecoverRefusesWhatIsUnclear(t *testing.T) {
	for _, args := range [][]string{
		{"--all", "x"}, {"--all", "--to", "y"}, {"a", "b", "--to", "y"}, {"a", "b", "--out", "y"}, {"--out", "y"},
		{"a", "--out", "y", "--to", "z"}, {"a", "--discard", "--replace"}, {"--discard"}, {"--unclosed"}, {"--replace"}, {""},
	} {
		require.Equal(t, exitUsage, inProcess(t, append([]string{"recover"}, args...)...).code, args)
	}
}
