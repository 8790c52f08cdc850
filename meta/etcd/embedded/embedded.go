// Package embedded runs a real etcd server inside this process, for a cluster
// whose first node brings its own metadata store. It owns the server and its
// directory and knows nothing of what is stored.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

const (
	// DefaultListen is where clients connect unless told otherwise.
	DefaultListen = "127.0.0.1:2379"
	// quota is the most the database may hold, in bytes: the most etcd
	// recommends.
	quota = 8 << 30
	// keep is how much history watches may resume from.
	keep = "1h"
	// tidyEvery is how often the server looks whether defragmenting is due.
	tidyEvery = 10 * time.Minute
	// tidyMin is the database size, in bytes, under which it is not.
	tidyMin = 64 << 20
	// name of the only member, and its peer address, on which nothing
	// listens: a cluster of one has no peers.
	memberName = "p2pfs"
	peerURL    = "http://127.0.0.1:2380"
)

// Config of a Server.
type Config struct {
	Dir    string // its data; made if there is none, kept after Close
	Listen string // HOST:PORT of the client port; empty: DefaultListen; port 0: any
	// Advertise is the host (or HOST:PORT, of which the port is not used)
	// that others reach a wildcard Listen at.
	Advertise string
	Log       *slog.Logger // errors of the server; nil discards
}

// Server is a running etcd server.
type Server struct {
	etcd *embed.Etcd
	lock *os.File
	url  string
	log  *slog.Logger
	stop chan struct{}
	wg   sync.WaitGroup
	once sync.Once

	endStreams context.CancelFunc
	closing    *atomic.Bool
	direct     *direct
}

// Start runs a server until Close, and returns when it answers. It starts
// goroutines, all of which Close ends.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Listen == "" {
		cfg.Listen = DefaultListen
	}
	closing := new(atomic.Bool)
	ec, err := etcdConfig(cfg, closing)
	if err != nil {
		return nil, err
	}
	streams, endStreams := context.WithCancel(context.Background())
	ec.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(endWith(streams))}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		endStreams()
		return nil, err
	}
	e, err := embed.StartEtcd(ec)
	if err != nil {
		endStreams()
		_ = lock.Close()
		return nil, explain(cfg, err)
	}
	s := &Server{etcd: e, lock: lock, log: cfg.Log, stop: make(chan struct{}), endStreams: endStreams, closing: closing}
	s.direct = newDirect(streams, e.Server)
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		s.Close()
		return nil, explain(cfg, err)
	case <-e.Server.StopNotify():
		s.Close()
		return nil, fmt.Errorf("start metadata store in %s: it stopped", cfg.Dir)
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("start metadata store in %s: %w", cfg.Dir, ctx.Err())
	}
	if s.url, err = reachable(e.Clients[0].Addr(), cfg); err != nil {
		s.Close()
		return nil, err
	}
	s.wg.Add(1)
	go s.tidy()
	return s, nil
}

// lockDir keeps a second server off the directory: etcd itself would wait in
// silence for the first to end.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "p2pfs.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock metadata directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("metadata directory %s is in use by another program: %w", dir, err)
	}
	return f, nil
}

func etcdConfig(cfg Config, closing *atomic.Bool) (*embed.Config, error) {
	if _, err := reachable(nil, cfg); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make metadata directory: %w", err)
	}
	peer, err := url.Parse(peerURL)
	if err != nil {
		return nil, err
	}
	client := url.URL{Scheme: "http", Host: cfg.Listen}
	ec := embed.NewConfig()
	ec.Name = memberName
	ec.Dir = cfg.Dir
	ec.ListenPeerUrls = nil
	ec.AdvertisePeerUrls = []url.URL{*peer}
	ec.ListenClientUrls = []url.URL{client}
	ec.AdvertiseClientUrls = []url.URL{client}
	ec.InitialCluster = ec.InitialClusterFromName(memberName)
	ec.QuotaBackendBytes = quota
	ec.AutoCompactionMode = embed.CompactorModePeriodic
	ec.AutoCompactionRetention = keep
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(cfg.Log, closing))
	return ec, nil
}

// explain names what the user can change.
func explain(cfg Config, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("metadata store cannot listen on %s, another program does; if that is the store of a cluster, join it with p2pfs mount etcd://%s MOUNTPOINT, else choose another with --meta-listen HOST:PORT: %w", cfg.Listen, cfg.Listen, err)
	}
	return fmt.Errorf("start metadata store in %s on %s: %w", cfg.Dir, cfg.Listen, err)
}

// reachable returns the URL for others: the address listened on (nil before
// that is known), with the advertised host for a wildcard.
func reachable(addr net.Addr, cfg Config) (string, error) {
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return "", fmt.Errorf("--meta-listen %q is not HOST:PORT: %w", cfg.Listen, err)
	}
	if addr != nil {
		if _, port, err = net.SplitHostPort(addr.String()); err != nil {
			return "", fmt.Errorf("metadata store listens on %q: %w", addr, err)
		}
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		if host = cfg.Advertise; host == "" {
			return "", fmt.Errorf("--meta-listen %s is every address of this machine: say with --advertise which one others connect to", cfg.Listen)
		}
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	return "etcd://" + net.JoinHostPort(host, port), nil
}

// URL returns the store's URL for other nodes.
func (s *Server) URL() string { return s.url }

// Err tells when the server stops by itself; it is closed with the server.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Close stops the server and waits for it. Its data stays.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.closing.Store(true)
		close(s.stop)
		s.wg.Wait()
		s.endStreams()
		s.direct.close()
		s.etcd.Close()
		_ = unix.Flock(int(s.lock.Fd()), unix.LOCK_UN) // a process that is being started may still have it
		_ = s.lock.Close()
	})
	return nil
}

// Defragment gives back to the file system what the database no longer uses.
// The server answers nothing meanwhile.
func (s *Server) Defragment() error {
	if err := s.etcd.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("defragment metadata store: %w", err)
	}
	return nil
}

// tidy defragments when more than half of a large database is unused.
func (s *Server) tidy() {
	defer s.wg.Done()
	t := time.NewTicker(tidyEvery)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
		}
		b := s.etcd.Server.Backend()
		if b.Size() < tidyMin || b.SizeInUse() > b.Size()/2 {
			continue
		}
		if err := s.Defragment(); err != nil {
			s.log.Error("metadata store not tidied", "err", err)
		}
	}
}
