//go:build linux && cgo && rdma

package verbs_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/devices"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/verbs"
)

// bed is one provider and one reader of a cluster.
type bed struct {
	source *rdmatest.Source
	node   node
	client *verbs.Client
}

func newBed(t testing.TB, s system, hc verbs.HandlerConfig, cc verbs.ClientConfig) bed {
	creds := rdma.Credentials{Cluster: chunk.NewClusterID(), Secret: rdmatest.RandomBytes(1, 32), Self: chunk.NewNodeID(), Incarnation: 7}
	b := bed{source: rdmatest.NewSource(t)}
	b.node = s.serve(t, rdmatest.ServeConfig{Credentials: creds, Source: b.source}, hc)
	creds.Self = chunk.NewNodeID()
	b.client = s.client(t, rdmatest.ClientConfig{Credentials: creds, Memory: 32 << 20, Stall: 10 * time.Second}, cc)
	return b
}

func (b bed) fetch(t testing.TB, o chunk.Object, block int) error {
	l, err := b.client.Fetch(t.Context(), b.node.Peer(), []chunk.BlockRef{o.Ref(block)})
	if err != nil {
		return err
	}
	defer l.Release()
	require.True(t, string(b.source.Data(o.ID, block)) == string(l.Blocks()[0].Data))
	return nil
}

// TestReadAfterLease: a READ under a lease that ran out fails, and brings
// nothing.
func TestReadAfterLease(t *testing.T) {
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{TTL: 2 * time.Second}, verbs.ClientConfig{})
	o := b.source.Add(rdmatest.RandomBytes(2, 2<<20), 1<<20)
	status, data, err := verbs.ReadLate(t.Context(), b.client, b.node.Handler, b.node.Peer(), o.Ref(1))
	require.NoError(t, err)
	require.NotZero(t, status)
	require.Equal(t, make([]byte, 1<<20), data)
	require.EqualValues(t, 1, b.node.Stats().Expired)
	require.NoError(t, b.fetch(t, o, 0), "the next reader is served")
	lent, released := b.source.Counts()
	require.Equal(t, lent, released)
}

// TestChangedUnderRead: of bytes that are wrong because their source changed
// the provider says so, and is not charged with a lie.
func TestChangedUnderRead(t *testing.T) {
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{}, verbs.ClientConfig{})
	o := b.source.Add(rdmatest.RandomBytes(2, 1<<20), 1<<20)
	verbs.Lying(b.node.Handler, verbs.Lie{WrongSum: true})
	for _, want := range []error{chunk.ErrSourceChanged, chunk.ErrDamaged} {
		b.source.OnRelease(func() error { return fmt.Errorf("check the source: %w", want) })
		err := b.fetch(t, o, 0)
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, chunk.ErrCorrupt)
	}
	b.source.OnRelease(nil)
	require.ErrorIs(t, b.fetch(t, o, 0), chunk.ErrCorrupt)
	verbs.Lying(b.node.Handler, verbs.Lie{})
	require.NoError(t, b.fetch(t, o, 0))
	lent, released := b.source.Counts()
	require.Equal(t, lent, released)
}

// TestStaleKey: a key that is not valid any more costs the connection, not the
// peer.
func TestStaleKey(t *testing.T) {
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{}, verbs.ClientConfig{})
	o := b.source.Add(rdmatest.RandomBytes(2, 1<<20), 1<<20)
	verbs.Lying(b.node.Handler, verbs.Lie{StaleKey: true})
	err := b.fetch(t, o, 0)
	require.Error(t, err)
	require.True(t, verbs.Elsewhere(err), "%v", err)
	verbs.Lying(b.node.Handler, verbs.Lie{})
	require.ErrorIs(t, b.fetch(t, o, 0), verbs.ErrPaused)
	require.Eventually(t, func() bool { return b.fetch(t, o, 0) == nil }, 30*time.Second, 50*time.Millisecond, "the connection is not tried again")
	require.Zero(t, b.client.MemoryInUse())
}

// TestRegistrations: one for each part of a file, none on repeat, none across
// the limit of a device.
func TestRegistrations(t *testing.T) {
	const size, block = 200<<20 + 1, 4 << 20
	b := newBed(t, newSystem(t, verbs.HostConfig{MaxRegistration: 96 << 20}), verbs.HandlerConfig{}, verbs.ClientConfig{})
	o := b.source.Add(rdmatest.RandomBytes(2, size), block)
	for round := range 2 {
		got, want := sha256.New(), sha256.New()
		for i := range o.Blocks() {
			l, err := b.client.Fetch(t.Context(), b.node.Peer(), []chunk.BlockRef{o.Ref(i)})
			require.NoError(t, err)
			got.Write(l.Blocks()[0].Data)
			want.Write(b.source.Data(o.ID, i))
			l.Release()
		}
		require.Equal(t, want.Sum(nil), got.Sum(nil))
		require.EqualValues(t, 4, b.node.Stats().Registrations, "round %d", round)
	}
	require.EqualValues(t, size, b.node.Stats().RegisteredBytes)
}

// TestBudgetOfRegistrations: what was used longest ago makes room; what is in
// use never does, and the reader is sent elsewhere.
func TestBudgetOfRegistrations(t *testing.T) {
	const block = 1 << 20
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{Registered: 2 * block}, verbs.ClientConfig{})
	for i := range 6 {
		o := b.source.Add(rdmatest.RandomBytes(uint64(i), block), block)
		require.NoError(t, b.fetch(t, o, 0))
		require.LessOrEqual(t, b.node.Stats().RegisteredBytes, int64(2*block))
	}
	large := b.source.Add(rdmatest.RandomBytes(9, 3*block), block)
	err := b.fetch(t, large, 0)
	require.ErrorIs(t, err, verbs.ErrFull)
	require.True(t, verbs.Elsewhere(err))
}

// TestIdleRegistrationsGo: what nobody reads any more is not pinned.
func TestIdleRegistrationsGo(t *testing.T) {
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{Idle: 20 * time.Millisecond}, verbs.ClientConfig{})
	o := b.source.Add(rdmatest.RandomBytes(1, 1<<20), 1<<20)
	require.NoError(t, b.fetch(t, o, 0))
	require.Eventually(t, func() bool { return b.node.Stats().RegisteredBytes == 0 }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, b.fetch(t, o, 0))
}

// TestTwoRails: both ports carry blocks, and each is named in the counters.
func TestTwoRails(t *testing.T) {
	all, err := devices.Host().Devices()
	require.NoError(t, err)
	choice := devices.Choose(all, devices.Want{Devices: []string{"rxe0", "rxe1"}, GIDIndex: devices.AnyGID})
	require.NoError(t, choice.Err())
	h, err := verbs.Open(verbs.HostConfig{Rails: choice.Rails, Log: testLog(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	for _, rails := range []int{0, 4} {
		b := newBed(t, system{h, h}, verbs.HandlerConfig{}, verbs.ClientConfig{Rails: rails})
		o := b.source.Add(rdmatest.RandomBytes(1, 16<<20), 1<<20)
		for i := range o.Blocks() {
			require.NoError(t, b.fetch(t, o, i))
		}
		s := b.client.Stats()
		require.Equal(t, max(rails, 2), s.Links)
		require.EqualValues(t, 16<<20, s.Rails["rxe0:1"].Bytes+s.Rails["rxe1:1"].Bytes)
		require.InDelta(t, s.Rails["rxe0:1"].Bytes, s.Rails["rxe1:1"].Bytes, 8<<20) // a connection that is not there yet is asked for nothing ahead
	}
}

// TestLeasesAhead: who reads in order has most leases before it asks for them, and
// gives back those that it does not use.
func TestLeasesAhead(t *testing.T) {
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{}, verbs.ClientConfig{})
	const blocks, used = 64, 40
	o := b.source.Add(rdmatest.RandomBytes(1, blocks*chunk.MinBlockSize+5), chunk.MinBlockSize)
	for i := range used {
		require.NoError(t, b.fetch(t, o, i))
	}
	s := b.node.Stats()
	require.Greater(t, s.Leases, uint64(used), "none came ahead")
	require.Less(t, s.Messages, uint64(used*3/2), "a word on each block, and few grants")
	require.NoError(t, b.fetch(t, o, blocks), "the short one at the end")
	require.Eventually(t, func() bool {
		lent, released := b.source.Counts()
		return lent == released
	}, 60*time.Second, 10*time.Millisecond)
	require.Zero(t, verbs.Leases(b.node.Handler))
	require.Zero(t, b.node.Stats().Expired)
}

// TestLinkCut: without the link a fetch fails within a bound, and one that
// follows when it is back succeeds.
func TestLinkCut(t *testing.T) {
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{}, verbs.ClientConfig{})
	o := b.source.Add(rdmatest.RandomBytes(1, 1<<20), 1<<20)
	require.NoError(t, b.fetch(t, o, 0))
	ip := func(args ...string) {
		out, err := exec.Command("ip", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	link := func(state string) { ip("link", "set", "p1", state) }
	link("down")
	t.Cleanup(func() {
		link("up")
		ip("route", "replace", "10.77.0.1", "dev", "p1", "src", "10.77.0.2", "table", "101") // lost with the link
	})
	start := time.Now()
	err := b.fetch(t, o, 0)
	require.Error(t, err)
	require.True(t, verbs.Elsewhere(err), "%v", err)
	t.Logf("failed after %v: %v", time.Since(start), err)
	link("up")
	require.Eventually(t, func() bool { return b.fetch(t, o, 0) == nil }, 60*time.Second, 100*time.Millisecond)
	require.Zero(t, b.client.MemoryInUse())
}

// TestRailToNowhere: a rail that swallows all READs is paused, even if nobody
// ever waits until the device says so.
func TestRailToNowhere(t *testing.T) {
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{}, verbs.ClientConfig{})
	o := b.source.Add(rdmatest.RandomBytes(1, 1<<20), 1<<20)
	require.NoError(t, b.fetch(t, o, 0))
	qdisc := func(args ...string) {
		out, err := exec.Command("tc", append([]string{"qdisc"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	open := sync.OnceFunc(func() { qdisc("del", "dev", "p1", "root") })
	qdisc("add", "dev", "p1", "root", "netem", "loss", "100%")
	t.Cleanup(open)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := b.client.Fetch(ctx, b.node.Peer(), []chunk.BlockRef{o.Ref(0)})
		return errors.Is(err, verbs.ErrPaused)
	}, 60*time.Second, time.Millisecond)
	require.Regexp(t, "no READ ended|retry counter exceeded", b.client.Stats().LastFail)
	open()
	require.Eventually(t, func() bool { return b.fetch(t, o, 0) == nil }, 60*time.Second, 100*time.Millisecond)
	require.Zero(t, b.client.MemoryInUse())
}

// TestTruncatedUnderRegistration: a file that is cut while it is registered is
// refused, and harms nobody.
func TestTruncatedUnderRegistration(t *testing.T) {
	b := newBed(t, newSystem(t, verbs.HostConfig{}), verbs.HandlerConfig{}, verbs.ClientConfig{})
	o := b.source.Add(rdmatest.RandomBytes(1, 4<<20), 1<<20)
	require.NoError(t, b.fetch(t, o, 0))
	b.source.Truncate(o.ID, 1<<20)
	require.NoError(t, b.fetch(t, o, 0))
	err := b.fetch(t, o, 3)
	require.Error(t, err)
	require.False(t, verbs.Elsewhere(err), "TCP has it no better: %v", err)
}

// TestNoGrowth: what is made for links and blocks is given back.
func TestNoGrowth(t *testing.T) {
	s := newSystem(t, verbs.HostConfig{})
	count := func() int {
		fds, err := filepath.Glob("/proc/self/fd/*")
		require.NoError(t, err)
		return len(fds)
	}
	resources := func() string {
		out, err := exec.Command("rdma", "resource", "show").CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	var fds int
	var held string
	for round := range 12 {
		t.Run("round", func(t *testing.T) {
			b := newBed(t, s, verbs.HandlerConfig{}, verbs.ClientConfig{})
			o := b.source.Add(rdmatest.RandomBytes(1, 1<<20), 1<<20)
			require.NoError(t, b.fetch(t, o, 0))
		})
		if round == 1 {
			fds, held = count(), resources()
		}
	}
	require.Equal(t, held, resources())
	require.LessOrEqual(t, count(), fds+2)
}

// TestSmallMemlock: a limit that is too small is said with what to do.
func TestSmallMemlock(t *testing.T) {
	if os.Getenv("VERBS_TEST_MEMLOCK") == "" {
		exe, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", exe, "-test.run=^TestSmallMemlock$", "-test.v")
		cmd.Env = append(os.Environ(), "VERBS_TEST_MEMLOCK=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestSmallMemlock")
		return
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
	s := newSystem(t, verbs.HostConfig{})
	auth, err := rdma.NewAuth(rdma.Credentials{Cluster: chunk.NewClusterID(), Secret: rdmatest.RandomBytes(1, 32), Self: chunk.NewNodeID(), Incarnation: 7})
	require.NoError(t, err)
	_, err = verbs.NewClient(verbs.ClientConfig{Host: s.reader, Auth: auth, Memory: 64 << 20})
	require.ErrorContains(t, err, "ulimit -l unlimited")
}
