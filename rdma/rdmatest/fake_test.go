package rdmatest_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fake is the fake transport as the suite sees it.
type fake struct{ net *rdmatest.Network }

func newFake(testing.TB) rdmatest.System { return fake{net: rdmatest.NewNetwork()} }

func (f fake) Serve(t testing.TB, cfg rdmatest.ServeConfig) rdmatest.Server {
	return f.Hostile(t, "", cfg)
}

func (f fake) Hostile(t testing.TB, fault rdmatest.Fault, cfg rdmatest.ServeConfig) rdmatest.Server {
	p, err := f.net.NewProvider(rdmatest.ProviderConfig{
		Credentials: cfg.Credentials, Source: cfg.Source, Counters: cfg.Counters, Addr: cfg.Addr, Fault: fault,
	})
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	return p
}

func (f fake) Client(t testing.TB, cfg rdmatest.ClientConfig) rdmatest.Client {
	r, err := f.net.NewReader(rdmatest.ReaderConfig(cfg))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// TestFake: what the suite asks of every transport.
func TestFake(t *testing.T) { rdmatest.Run(t, newFake) }

// world is one provider with a fault, one reader, and an object of two blocks.
type world struct {
	source   *rdmatest.Source
	provider *rdmatest.Provider
	reader   *rdmatest.Reader
	object   chunk.Object
}

func newWorld(t *testing.T, cfg rdmatest.ProviderConfig) world {
	w := world{source: rdmatest.NewSource(t)}
	creds := rdma.Credentials{Cluster: chunk.NewClusterID(), Secret: rdmatest.RandomBytes(1, 32), Self: chunk.NewNodeID(), Incarnation: 1}
	cfg.Credentials, cfg.Source = creds, w.source
	net := rdmatest.NewNetwork()
	var err error
	w.provider, err = net.NewProvider(cfg)
	require.NoError(t, err)
	t.Cleanup(w.provider.Stop)
	creds.Self = chunk.NewNodeID()
	w.reader, err = net.NewReader(rdmatest.ReaderConfig{Credentials: creds, Stall: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.reader.Close()) })
	w.object = w.source.Add(rdmatest.RandomBytes(2, 2*blockSize), blockSize)
	return w
}

const blockSize = 64 << 10

func (w world) fetch(t *testing.T, blocks ...int) error {
	refs := make([]chunk.BlockRef, len(blocks))
	for i, b := range blocks {
		refs[i] = w.object.Ref(b)
	}
	l, err := w.reader.Fetch(t.Context(), w.provider.Peer(), refs)
	if err != nil {
		require.Zero(t, w.reader.MemoryInUse())
		return err
	}
	defer l.Release()
	for i, b := range blocks {
		require.True(t, string(w.source.Data(w.object.ID, b)) == string(l.Blocks()[i].Data))
	}
	return nil
}

// settled: the provider lent nothing that it did not get back.
func (w world) settled(t *testing.T) {
	require.Eventually(t, func() bool {
		lent, released := w.source.Counts()
		return w.provider.Leases() == 0 && w.provider.MemoryInUse() == 0 && lent == released
	}, 2*time.Minute, time.Millisecond)
}

// TestOneSidedFaults: what can only go wrong where the provider's code does
// not run.
func TestOneSidedFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault rdmatest.Fault
		ttl   time.Duration
		want  error // nil: any
	}{
		{rdmatest.TornRead, time.Hour, chunk.ErrCorrupt},
		{rdmatest.StaleKey, time.Hour, nil},
		{rdmatest.LeaseRunOut, 50 * time.Millisecond, nil},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, rdmatest.ProviderConfig{Fault: c.fault, TTL: c.ttl})
			for range 3 {
				err := w.fetch(t, 0, 1)
				require.Error(t, err)
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				}
			}
			w.settled(t)
		})
	}
}

// TestLeaseOutlivesRead: a lease is given back with the fetch, long before it
// runs out.
func TestLeaseOutlivesRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rdmatest.ProviderConfig{TTL: time.Hour})
	for range 10 {
		require.NoError(t, w.fetch(t, 0, 1))
		require.Zero(t, w.provider.Leases())
	}
	w.settled(t)
}

// TestReaderGoes: what a reader leaves behind is taken back at once, not when
// its lease runs out.
func TestReaderGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rdmatest.ProviderConfig{TTL: time.Hour, Fault: rdmatest.HangInBody})
	done := make(chan error, 1)
	go func() { done <- w.fetch(t, 0) }()
	require.Eventually(t, func() bool { return w.provider.Leases() == 1 }, 2*time.Minute, time.Millisecond)
	require.NoError(t, w.reader.Close())
	require.ErrorIs(t, <-done, chunk.ErrClosed)
	w.settled(t)
}

// TestProviderMemoryIsBounded: readers wait for a provider's slots.
func TestProviderMemoryIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rdmatest.ProviderConfig{Memory: blockSize})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if err := w.fetch(t, i%2); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.ErrorIs(t, w.fetch(t, 0, 1), rdma.ErrTooLarge)
	w.settled(t)
}
