package node

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

func TestSharesAreStableAndTakeEveryFileOnce(t *testing.T) {
	t.Parallel()
	var files []askedFile
	for i := range 11 {
		files = append(files, askedFile{path: fmt.Sprintf("f%02d", i)})
	}
	require.Equal(t, files, share(files, 0, 0))
	require.Equal(t, files, share(files, 0, 1))
	seen := map[string]int{}
	for rank := range 4 {
		for i, f := range share(files, rank, 4) {
			require.Equal(t, fmt.Sprintf("f%02d", rank+4*i), f.path)
			seen[f.path]++
		}
	}
	require.Len(t, seen, 11)
	require.Empty(t, share(files[:2], 3, 4), "more ranks than files")
}

func TestWarmRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	p := [][]byte{[]byte("a")}
	for _, c := range []struct {
		name string
		r    *nodepb.WarmRequest
		ok   bool
	}{
		{"plain", &nodepb.WarmRequest{Paths: p}, true},
		{"the last rank", &nodepb.WarmRequest{Paths: p, Rank: 3, WorldSize: 4}, true},
		{"no path", &nodepb.WarmRequest{}, false},
		{"a rank of nothing", &nodepb.WarmRequest{Paths: p, Rank: 1}, false},
		{"a rank beyond", &nodepb.WarmRequest{Paths: p, Rank: 4, WorldSize: 4}, false},
		{"a rank below", &nodepb.WarmRequest{Paths: p, Rank: -1, WorldSize: 4}, false},
		{"a world below", &nodepb.WarmRequest{Paths: p, WorldSize: -1}, false},
		{"too many at once", &nodepb.WarmRequest{Paths: p, Concurrency: maxAtOnce + 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := checkWarm(c.r); c.ok {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errRequest)
			}
		})
	}
}

func TestWarmTellsOfEveryFileThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, warmTells) // no time goes by
}

func warmTells(t *testing.T) {
	var told []*nodepb.WarmReply
	w := &warming{
		bytes: make([]int64, 2), reply: &nodepb.WarmReply{FilesTotal: 2, BytesTotal: 30},
		tell: func(r *nodepb.WarmReply) error {
			told = append(told, proto.CloneOf(r))
			return nil
		},
	}
	require.NoError(t, w.have(0, 5, true))
	require.NoError(t, w.have(0, 7, true), "just told")
	require.NoError(t, w.have(1, 20, false))
	require.NoError(t, w.ended(&nodepb.WarmReply_File{Path: []byte("b")}))
	require.NoError(t, w.ended(&nodepb.WarmReply_File{Path: []byte("a"), Error: "gone"}))
	require.Len(t, told, 3)
	require.EqualValues(t, 5, told[0].GetBytes())
	require.Nil(t, told[0].GetFile())
	require.EqualValues(t, 27, told[1].GetBytes())
	require.EqualValues(t, 1, told[1].GetFiles())
	require.Zero(t, told[1].GetFailed())
	require.EqualValues(t, 2, told[2].GetFiles())
	require.EqualValues(t, 1, told[2].GetFailed())
}

func TestTraceRemembersTheLastRequests(t *testing.T) {
	t.Parallel()
	var tr trace
	mine, other := chunk.Object{ID: chunk.NewObjectID()}, chunk.Object{ID: chunk.NewObjectID()}
	for i := range traceLength + 10 {
		o := mine
		if i%2 == 1 {
			o = other
		}
		tr.add(chunk.BlockEvent{Object: o, Block: i})
	}
	events, next, forgotten, more := tr.since(0, mine.ID)
	require.Len(t, events, traceLength/2)
	require.Equal(t, 10, events[0].Block)
	require.EqualValues(t, 10, forgotten)
	require.EqualValues(t, traceLength+10, next)
	select {
	case <-more:
		require.Fail(t, "nothing came")
	default:
	}
	tr.add(chunk.BlockEvent{Object: mine, Block: 77, Err: context.Canceled})
	<-more
	events, _, forgotten, _ = tr.since(next, mine.ID)
	require.Len(t, events, 1)
	require.Zero(t, forgotten)
	var got []*nodepb.TraceReply
	require.NoError(t, sendTrace(events, 3, func(r *nodepb.TraceReply) error {
		got = append(got, r)
		return nil
	}))
	require.Len(t, got, 1)
	require.EqualValues(t, 3, got[0].GetForgotten())
	require.Equal(t, context.Canceled.Error(), got[0].GetEvents()[0].GetError())
}

func TestALongTraceGoesInSeveralMessages(t *testing.T) {
	t.Parallel()
	events := make([]chunk.BlockEvent, 2*traceBatch+1)
	for i := range events {
		events[i] = chunk.BlockEvent{Block: i, Started: time.Now()}
	}
	n := 0
	require.NoError(t, sendTrace(events, 0, func(r *nodepb.TraceReply) error {
		for _, e := range r.GetEvents() {
			require.EqualValues(t, n, e.GetBlock())
			n++
		}
		return nil
	}))
	require.Equal(t, len(events), n)
}

func TestSiblingsAreFetchedOnceTwoFilesAreRead(t *testing.T) {
	t.Parallel()
	s := newSiblings(nil)
	of := siblingsOf{dir: 7, suffix: ".safetensors"}
	a, b := chunk.NewObjectID(), chunk.NewObjectID()
	require.False(t, s.note(of, a))
	require.False(t, s.note(of, a), "the same again")
	require.False(t, s.note(siblingsOf{dir: 7, suffix: ".bin"}, b), "another kind")
	require.True(t, s.note(of, b))
	require.False(t, s.note(of, b), "under way")
	s.end(of)
	require.True(t, s.note(of, b))
	for i := range 3 * siblingDirs {
		s.note(siblingsOf{dir: meta.InodeID(100 + i)}, a)
	}
	require.LessOrEqual(t, len(s.dirs), siblingDirs)
	for range 1000 {
		s.whole(chunk.Object{}) // never blocks
	}
	for name, want := range map[string]string{"a.safetensors": ".safetensors", "A.BIN": ".bin", "config.json": "", "bin": "", "x.bin.part": ""} {
		require.Equal(t, want, shardSuffix(name), name)
	}
}
