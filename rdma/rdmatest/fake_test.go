package rdmatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/p2pfs/p2pfs/rdma/rdmatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	r, err := f.net.NewReader(rdmatest.ReaderConfig{
		Credentials: cfg.Credentials, Counters: cfg.Counters, Memory: cfg.Memory, Stall: cfg.Stall,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func TestFake(t *testing.T) { rdmatest.Run(t, newFake) }
