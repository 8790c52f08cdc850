//go:build linux && cgo && rdma

package verbs_test

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/devices"
	"github.com/p2pfs/p2pfs/rdma/rdmatest"
	"github.com/p2pfs/p2pfs/rdma/verbs"
)

func TestConformance(t *testing.T) {
	rdmatest.Run(t, func(t testing.TB) rdmatest.System { return newSystem(t, verbs.HostConfig{}) })
}

// system is the transport as the suite sees it: readers on rxe0, providers on
// rxe1, which a guest has on the two ends of a link.
type system struct{ reader, provider *verbs.Host }

func newSystem(t testing.TB, cfg verbs.HostConfig) system {
	open := func(name string) *verbs.Host {
		all, err := devices.Host().Devices()
		require.NoError(t, err)
		choice := devices.Choose(all, devices.Want{Devices: []string{name}, GIDIndex: devices.AnyGID})
		require.NoError(t, choice.Err(), "run this in a guest: make test-rdma")
		cfg.Rails, cfg.Log = choice.Rails, testLog(t)
		h, err := verbs.Open(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close()) })
		return h
	}
	return system{open("rxe0"), open("rxe1")}
}

// node is one serving node, honest or not.
type node struct {
	*verbs.Handler
	creds rdma.Credentials
	addr  string
	stop  func()
}

func (n node) Peer() chunk.Peer {
	return chunk.Peer{Node: n.creds.Self, Incarnation: n.creds.Incarnation, Addrs: map[string]string{verbs.Protocol: n.addr}}
}

func (n node) Stop() { n.stop() }

func (s system) Serve(t testing.TB, cfg rdmatest.ServeConfig) rdmatest.Server {
	return s.serve(t, cfg, verbs.HandlerConfig{})
}

func (s system) serve(t testing.TB, cfg rdmatest.ServeConfig, hc verbs.HandlerConfig) node {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	auth, err := rdma.NewAuth(cfg.Credentials)
	require.NoError(t, err)
	hc.Host, hc.Source, hc.Auth, hc.Counters, hc.Log = s.provider, cfg.Source, auth, cfg.Counters, testLog(t)
	h, err := verbs.NewHandler(hc)
	require.NoError(t, err)
	l, err := net.Listen("tcp", cfg.Addr)
	require.NoError(t, err)
	srv := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	stop := sync.OnceFunc(func() {
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
		require.NoError(t, h.Close())
	})
	t.Cleanup(stop)
	return node{Handler: h, creds: cfg.Credentials, addr: l.Addr().String(), stop: stop}
}

func (s system) Hostile(t testing.TB, fault rdmatest.Fault, cfg rdmatest.ServeConfig) rdmatest.Server {
	lie, ok := map[rdmatest.Fault]verbs.Lie{
		rdmatest.ShortBody: {Short: true}, rdmatest.EndlessBody: {Endless: true}, rdmatest.Garbage: {Elsewhere: true},
		rdmatest.WrongBlock: {OtherBlock: true}, rdmatest.WrongSum: {WrongSum: true}, rdmatest.OtherNode: {OtherNode: true},
		rdmatest.ResetInBody: {Break: true}, rdmatest.HangAtOnce: {HangAsk: true}, rdmatest.HangInBody: {HangReturn: true},
		rdmatest.StaleKey: {StaleKey: true},
	}[fault]
	require.True(t, ok, fault)
	n := s.serve(t, cfg, verbs.HandlerConfig{TTL: 5 * time.Second})
	verbs.Lying(n.Handler, lie)
	return n
}

func (s system) Client(t testing.TB, cfg rdmatest.ClientConfig) rdmatest.Client {
	if cfg.Memory == 0 {
		cfg.Memory = 16 << 20 // registering much takes long in a guest
	}
	return s.client(t, cfg, verbs.ClientConfig{})
}

func (s system) client(t testing.TB, cfg rdmatest.ClientConfig, cc verbs.ClientConfig) *verbs.Client {
	auth, err := rdma.NewAuth(cfg.Credentials)
	require.NoError(t, err)
	cc.Host, cc.Auth, cc.Counters, cc.Memory, cc.StallTimeout, cc.Log = s.reader, auth, cfg.Counters, cfg.Memory, cfg.Stall, testLog(t)
	c, err := verbs.NewClient(cc)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
