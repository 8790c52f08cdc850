package rdmatest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

const (
	// stall is the bound on progress where a peer hangs on purpose; patient
	// is it elsewhere, far from what a busy machine needs.
	stall   = 4 * time.Second
	patient = 2 * time.Minute
	// soon is far more than anything in the suite takes that does not hang.
	soon = 4 * time.Minute
	// block is the size of blocks that are read in one piece; large blocks
	// go by every other path a transport may have for them.
	block = chunk.MinBlockSize
	large = 512 << 10
)

// Run is what every transport must do. system makes it anew for each test;
// without names tests that a system has no use for.
func Run(t *testing.T, system func(t testing.TB) System, without ...string) {
	t.Parallel()
	cases := []struct {
		name string
		run  func(*testing.T, *bed)
	}{
		{"bytes arrive", testBytes},
		{"last block is short", testShortLast},
		{"zero blocks", testZero},
		{"many blocks at once", testMany},
		{"no blocks", testNone},
		{"fetches at the same time", testConcurrent},
		{"counters", testCounters},
		{"all or none", testAllOrNone},
		{"source says no", testSourceErrors},
		{"source changes in mid-send", testChanged},
		{"source is cut short", testTruncated},
		{"who may ask", testCredentials},
		{"no address", testNoAddress},
		{"impossible blocks", testImpossible},
		{"block of another length", testOtherLength},
		{"nobody there", testNobody},
		{"node restarts", testRestart},
		{"hostile peers", testHostile},
		{"context ends", testCancel},
		{"memory is bounded", testMemory},
		{"close while a peer hangs", testCloseHung},
		{"close with a lease out", testCloseLease},
	}
	for _, c := range cases {
		if slices.Contains(without, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newBed(t, system(t)))
		})
	}
}

// bed is one cluster with a source, as most tests need it.
type bed struct {
	t       *testing.T
	sys     System
	cluster chunk.ClusterID
	secret  []byte
	source  *Source
}

func newBed(t *testing.T, sys System) *bed {
	return &bed{t: t, sys: sys, cluster: chunk.NewClusterID(), secret: RandomBytes(7, 32), source: NewSource(t)}
}

// node returns the credentials of a new node.
func (b *bed) node() rdma.Credentials {
	return rdma.Credentials{Cluster: b.cluster, Secret: b.secret, Self: chunk.NewNodeID(), Incarnation: 41}
}

func (b *bed) serve() Server {
	return b.sys.Serve(b.t, ServeConfig{Credentials: b.node(), Source: b.source})
}

func (b *bed) client(memory int64) Client {
	return b.sys.Client(b.t, ClientConfig{Credentials: b.node(), Memory: memory, Stall: patient})
}

// mustFetch fetches blocks, compares them with the source and releases them.
func (b *bed) mustFetch(c Client, from chunk.Peer, refs ...chunk.BlockRef) {
	b.t.Helper()
	l, err := c.Fetch(b.t.Context(), from, refs)
	require.NoError(b.t, err)
	b.check(l, refs...)
	l.Release()
}

func (b *bed) check(l chunk.Lease, refs ...chunk.BlockRef) {
	b.t.Helper()
	got := l.Blocks()
	require.Len(b.t, got, len(refs))
	for i, r := range refs {
		require.Equal(b.t, r, got[i].Ref)
		want := b.source.Data(r.Object, r.Index)
		require.Equal(b.t, chunk.Sum(want), got[i].Sum)
		if got[i].Zero {
			require.Nil(b.t, got[i].Data)
			require.Equal(b.t, make([]byte, r.Len), want)
			continue
		}
		require.True(b.t, string(want) == string(got[i].Data), "block %d differs", r.Index)
	}
}

// failFetch fetches what must fail within a bound, and returns the error.
func (b *bed) failFetch(c Client, from chunk.Peer, refs ...chunk.BlockRef) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), soon)
	defer cancel()
	l, err := c.Fetch(ctx, from, refs)
	require.Error(b.t, err)
	require.Nil(b.t, l)
	require.NoError(b.t, ctx.Err(), "the fetch took too long: %v", err)
	require.NotErrorIs(b.t, err, context.DeadlineExceeded)
	require.NotErrorIs(b.t, err, context.Canceled)
	return err
}

// settled waits until the source has everything back, and checks that the
// client lent nothing it did not get back.
func (b *bed) settled(c Client) {
	b.t.Helper()
	require.Zero(b.t, c.MemoryInUse())
	require.Eventually(b.t, func() bool {
		lent, released := b.source.Counts()
		return lent == released
	}, soon, time.Millisecond, "the source did not get its blocks back")
}

func refsOf(o chunk.Object) []chunk.BlockRef {
	refs := make([]chunk.BlockRef, o.Blocks())
	for i := range refs {
		refs[i] = o.Ref(i)
	}
	return refs
}
