package integration

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// netStore is a store in a namespace of its own. What it holds outlives it.
type netStore struct {
	t    *testing.T
	host *netHost
	kind string // etcd or redis
	dir  string
	proc *process
}

func (s *netStore) url() string {
	if s.kind == "redis" {
		return "redis://" + s.address() + "/0/models"
	}
	return "etcd://" + s.address()
}

func (s *netStore) address() string {
	if s.kind == "redis" {
		return storeIP + ":6379"
	}
	return storeIP + ":2379"
}

func (s *netStore) start() {
	s.t.Helper()
	log, err := os.OpenFile(s.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(s.t, err)
	defer log.Close()
	require.NoError(s.t, os.MkdirAll(s.dir, 0o700))
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	s.proc, err = spawn(cmd)
	require.NoError(s.t, err)
	soon(s.t, 30*time.Second, s.kind+" listens", func() bool {
		require.True(s.t, s.proc.alive(), "%s ended: %s", s.kind, tail(s.dir+".log", 10))
		return s.host.dial(s.address()) == nil
	})
}

// command does not wait for the disk: processes are killed here, not machines. Nor
// does etcd wait long for votes: there is one member.
func (s *netStore) command() *exec.Cmd {
	if s.kind == "redis" {
		return s.host.command("redis-server", "--bind", storeIP, "--port", "6379", "--protected-mode", "no",
			"--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "no")
	}
	client, peer := "http://"+s.address(), "http://127.0.0.1:2380"
	return s.host.command("etcd", "--name", "it", "--data-dir", s.dir, "--unsafe-no-fsync", "--heartbeat-interval=20", "--election-timeout=200",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "it="+peer)
}

func (s *netStore) stop() { s.proc.kill() }
