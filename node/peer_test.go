package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/rdma"
)

// shelf holds one object for the peer service.
type shelf struct {
	mu     sync.Mutex
	id     chunk.ObjectID
	have   chunk.Bitmap
	sums   map[int]uint32
	keeper bool
	bound  []int // by Bind
	kept   chan chunk.ObjectID
	refuse error // of Keep
}

func (s *shelf) Bind(_ context.Context, _ chunk.ObjectID, block int) error {
	s.bound = append(s.bound, block)
	s.sums[block] = uint32(11 * block)
	return nil
}

func (s *shelf) Keep(_ context.Context, id chunk.ObjectID, set chunk.SetID, size int64) error {
	if s.refuse != nil {
		return s.refuse
	}
	s.kept <- id
	return nil
}

func (s *shelf) Held(id chunk.ObjectID) (chunk.Held, bool, bool) { return s, s.keeper, id == s.id }
func (s *shelf) Has(i int) bool                                  { return s.Have().Has(i) }
func (s *shelf) Complete() bool                                  { return s.Have().Full() }

func (s *shelf) Have() chunk.Bitmap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.have.Clone()
}

func (s *shelf) Sum(i int) (uint32, bool) {
	sum, ok := s.sums[i]
	return sum, ok
}

func (s *shelf) add(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have.Set(i)
}

// pair is a node that serves a shelf on loopback, and one that asks it.
type pair struct {
	shelf  *shelf
	object chunk.Object
	peer   chunk.Peer
	asker  *peers

	service *peerService
}

// newPatientPeers has time for a machine that is busy.
func newPatientPeers(auth rdma.Authorizer) *peers {
	p := newPeers(auth)
	p.connecting, p.hello = time.Minute, time.Minute
	return p
}

func newPair(t *testing.T) *pair {
	return newPairIn(t, rdma.Credentials{Cluster: chunk.NewClusterID(), Secret: make([]byte, 32)})
}

// newPairIn is newPair in a cluster that may have others.
func newPairIn(t *testing.T, creds rdma.Credentials) *pair {
	o := chunk.Object{ID: chunk.NewObjectID(), Size: 20 * 4096, ChunkSize: 4 * 4096, BlockSize: 4096}
	sh := &shelf{id: o.ID, have: chunk.NewBitmap(o.Blocks()), sums: map[int]uint32{3: 33, 4: 44}, keeper: true, kept: make(chan chunk.ObjectID, 1)}
	creds.Self, creds.Incarnation = chunk.NewNodeID(), 7
	auth, err := rdma.NewAuth(creds)
	require.NoError(t, err)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	service := &peerService{name: "s", holdings: sh, interest: &interest{}, sends: &chunk.Sends{}, meet: func(chunk.ObjectID, chunk.Peer) {}}
	srv := newServer(lis, http.NotFoundHandler(), newPeerServer(auth, service), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()

	asking := creds
	asking.Self = chunk.NewNodeID()
	askAuth, err := rdma.NewAuth(asking)
	require.NoError(t, err)
	asker := newPatientPeers(askAuth)
	t.Cleanup(func() {
		require.NoError(t, asker.Close())
		cancel()
		require.NoError(t, <-done)
	})
	return &pair{service: service, shelf: sh, object: o, asker: asker, peer: chunk.Peer{
		Node: creds.Self, Incarnation: creds.Incarnation, Name: "s", Addrs: map[string]string{"tcp": lis.Addr().String()},
	}}
}

func TestFollowTellsTheMapAndThenTheNews(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.shelf.add(2)
	var have chunk.Bitmap
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := p.asker.Follow(ctx, p.peer, p.object, func(a chunk.Availability) bool {
		require.True(t, a.Keeper)
		if a.Full {
			have = a.Have
			require.Equal(t, 1, have.Count())
			p.shelf.add(5)
			return true
		}
		for _, i := range a.Added {
			have.Set(i)
		}
		return !have.Has(5)
	})
	require.NoError(t, err)
	require.True(t, have.Has(2) && have.Has(5))
}

func TestFollowErrors(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	never := func(chunk.Availability) bool { return false }
	other := p.object
	other.ID = chunk.NewObjectID()
	require.ErrorIs(t, p.asker.Follow(t.Context(), p.peer, other, never), chunk.ErrNotHeld)

	longer := p.object
	longer.Size *= 2
	require.ErrorIs(t, p.asker.Follow(t.Context(), p.peer, longer, never), chunk.ErrCorrupt)

	earlier := p.peer
	earlier.Incarnation = 6
	require.ErrorIs(t, p.asker.Follow(t.Context(), earlier, p.object, never), chunk.ErrWrongNode)

	stranger, err := rdma.NewAuth(rdma.Credentials{Cluster: chunk.NewClusterID(), Secret: make([]byte, 32), Self: chunk.NewNodeID(), Incarnation: 1})
	require.NoError(t, err)
	s := newPatientPeers(stranger)
	defer s.Close()
	require.ErrorIs(t, s.Follow(t.Context(), p.peer, p.object, never), chunk.ErrWrongNode)

	nowhere := p.peer
	nowhere.Addrs = nil
	require.ErrorContains(t, p.asker.Follow(t.Context(), nowhere, p.object, never), "no tcp address")
}

func TestSums(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	got, err := p.asker.sums(t.Context(), p.peer, p.object, 1, 10, false)
	require.NoError(t, err)
	require.Equal(t, map[int]uint32{3: 33, 4: 44}, got)
}

// forger changes what a node says of itself.
type forger struct {
	rdma.Authorizer
	change func(*rdma.Claim)
}

func (f forger) Claim(to chunk.Peer) rdma.Claim {
	c := f.Authorizer.Claim(to)
	f.change(&c)
	return c
}

// TestForgedCallsAreRefused: every call to the node's port proves who it is
// from and for, whatever the method.
func TestForgedCallsAreRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.shelf.add(2)
	for _, tt := range []struct {
		name   string
		change func(*rdma.Claim)
		want   error
	}{
		{"no token", func(c *rdma.Claim) { c.Token = "" }, chunk.ErrRefused},
		{"tampered token", func(c *rdma.Claim) { c.Token = flipFirst(c.Token) }, chunk.ErrRefused},
		{"cut token", func(c *rdma.Claim) { c.Token = c.Token[:len(c.Token)-1] }, chunk.ErrRefused},
		{"another sender", func(c *rdma.Claim) { c.From = chunk.NewNodeID().String() }, chunk.ErrRefused},
		{"no sender", func(c *rdma.Claim) { c.From = "" }, chunk.ErrRefused},
		{"another incarnation", func(c *rdma.Claim) { c.Incarnation = rdma.FormatIncarnation(8) }, chunk.ErrWrongNode},
		{"no incarnation", func(c *rdma.Claim) { c.Incarnation = "" }, chunk.ErrWrongNode},
		{"another node", func(c *rdma.Claim) { c.Node = chunk.NewNodeID().String() }, chunk.ErrWrongNode},
		{"another cluster", func(c *rdma.Claim) { c.Cluster = chunk.NewClusterID().String() }, chunk.ErrWrongNode},
		{"nothing at all", func(c *rdma.Claim) { *c = rdma.Claim{} }, chunk.ErrRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asker := newPatientPeers(forger{p.asker.auth, tt.change})
			defer asker.Close()
			require.ErrorIs(t, asker.Follow(t.Context(), p.peer, p.object, func(chunk.Availability) bool {
				t.Error("a forged call was told of an object")
				return false
			}), tt.want)
			_, err := asker.sums(t.Context(), p.peer, p.object, 1, 10, false)
			require.ErrorIs(t, err, tt.want)
			c, done, err := asker.client(p.peer)
			require.NoError(t, err)
			defer done()
			_, err = c.Hello(asker.outgoing(t.Context(), p.peer), &nodepb.HelloRequest{ProtoMin: protoMin, ProtoMax: protoMax})
			require.ErrorIs(t, peerError(p.peer, err), tt.want)
		})
	}
}

func flipFirst(token string) string {
	if token[0] == '0' {
		return "1" + token[1:]
	}
	return "0" + token[1:]
}

func TestSumsAreBoundWhenAskedTo(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.shelf.add(3)
	p.shelf.add(6)
	got, err := p.asker.sums(t.Context(), p.peer, p.object, 1, 10, true)
	require.NoError(t, err)
	require.Equal(t, map[int]uint32{3: 33, 4: 44, 6: 66}, got)
	require.Equal(t, []int{6}, p.shelf.bound, "only what is here and has no sum is read")
}

// K2
func TestKeepAnswersWhenTheOtherKeeps(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	require.NoError(t, p.asker.keep(t.Context(), p.peer, p.object))
	require.Equal(t, p.object.ID, <-p.shelf.kept)
	p.shelf.refuse = fmt.Errorf("half of it: %w", chunk.ErrNotHeld)
	require.ErrorIs(t, p.asker.keep(t.Context(), p.peer, p.object), chunk.ErrNotHeld)
	p.shelf.refuse = errLeaving
	err := p.asker.keep(t.Context(), p.peer, p.object)
	require.ErrorContains(t, err, errLeaving.Error())
	require.NotErrorIs(t, err, chunk.ErrNotHeld)
}

// K2
func TestTwoKeepersDoNotRelyOnEachOther(t *testing.T) {
	t.Parallel()
	var l leaving
	id := chunk.NewObjectID()
	end := l.begin(id)
	again := l.begin(id)
	require.ErrorIs(t, ownHoldings{&Node{leaving: leaving{count: l.count}}}.Keep(t.Context(), id, chunk.NewSetID(), 1), errLeaving)
	again()
	require.True(t, l.has(id))
	end()
	require.False(t, l.has(id))
}

func TestFollowersCountAsInterest(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var i interest
	p.service.interest = &i
	for p.shelf.add(0); !p.shelf.Complete(); p.shelf.add(p.shelf.Have().Count()) {
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.asker.attend(ctx, p.peer, p.object) }()
	require.Eventually(t, func() bool { return i.has(p.object.ID) }, 2*time.Minute, time.Millisecond)
	cancel()
	require.Error(t, <-done)
	require.Eventually(t, func() bool { return !i.has(p.object.ID) }, 2*time.Minute, time.Millisecond)
}

// refusing returns an address that nobody else is given, where connections are
// refused until listen is called, once.
func refusing(t *testing.T) (listen func() net.Listener, addr string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	return func() net.Listener {
		require.NoError(t, unix.Listen(fd, 100))
		lis, err := net.FileListener(f)
		require.NoError(t, err)
		return lis
	}, fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}

// A node that could not be reached is there as soon as it can be: nothing is
// answered from an attempt of before.
func TestANodeIsAskedAnewAfterItCouldNotBeReached(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.shelf.add(2)
	there := p.peer.Addrs["tcp"]
	gone, front := refusing(t)
	p.peer.Addrs = map[string]string{"tcp": front}
	for range 4 {
		_, _, err := p.asker.holds(t.Context(), p.peer, p.object)
		require.ErrorContains(t, err, "refused")
	}

	lis := gone()
	var conns errgroup.Group
	conns.Go(func() error {
		for {
			in, err := lis.Accept()
			if err != nil {
				return nil
			}
			out, err := net.Dial("tcp", there)
			if err != nil {
				return err
			}
			relay := func(to, from net.Conn) func() error {
				return func() error {
					_, _ = io.Copy(to, from)
					return to.Close()
				}
			}
			conns.Go(relay(out, in))
			conns.Go(relay(in, out))
		}
	})
	blocks, keeper, err := p.asker.holds(t.Context(), p.peer, p.object)
	require.NoError(t, err)
	require.Equal(t, 1, blocks)
	require.True(t, keeper)
	require.NoError(t, lis.Close())
	require.NoError(t, p.asker.Close())
	_ = conns.Wait() // a side that is closed already says so
}

// A node that follows more others than it keeps connections to loses none of
// them; those that nobody uses any more go first.
func TestConnectionsInUseAreKept(t *testing.T) {
	t.Parallel()
	cluster := rdma.Credentials{Cluster: chunk.NewClusterID(), Secret: make([]byte, 32)}
	var pairs []*pair
	for range 4 {
		pairs = append(pairs, newPairIn(t, cluster))
	}
	asker := pairs[0].asker
	asker.bound = 2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	news := make(chan int, 10)
	var ended [3]chan error
	for i, p := range pairs[:3] {
		ended[i] = make(chan error, 1)
		go func() {
			ended[i] <- asker.Follow(ctx, p.peer, p.object, func(chunk.Availability) bool {
				news <- i
				return true
			})
		}()
		require.Equal(t, i, <-news)
	}
	for i, p := range pairs[:3] {
		p.shelf.add(1)
		select {
		case told := <-news:
			require.Equal(t, i, told)
		case err := <-ended[i]:
			require.NoError(t, err, "stream %d ended", i)
		}
	}
	cancel()
	for i := range ended {
		require.Error(t, <-ended[i])
	}
	_, _, err := asker.holds(t.Context(), pairs[3].peer, pairs[3].object)
	require.NoError(t, err)
	asker.mu.Lock()
	defer asker.mu.Unlock()
	require.Len(t, asker.conns, 2)
}
