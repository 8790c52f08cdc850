package metatest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Redis is a real redis-server, or a Sentinel, in a process of its own on
// loopback.
type Redis struct {
	*server
	dir string
}

var _ Server = (*Redis)(nil)

// StartRedis starts the redis-server of this machine with more settings, as
// "--maxmemory", "1mb". What it answered outlives its process, though not the
// machine: it waits for no disk. The test's end kills it.
func StartRedis(t testing.TB, settings ...string) *Redis {
	t.Helper()
	dir := t.TempDir()
	return startRedis(t, "redis-server", dir, func(port string) []string { return append(serverArgs(port, dir), settings...) })
}

func serverArgs(port, dir string) []string {
	return []string{
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--loglevel", "warning", "--save", "",
		"--appendonly", "yes", "--appendfsync", "no", "--repl-diskless-sync-delay", "0",
	}
}

// startRedis starts a server on a free port, with what args says. Its package
// is called as the program is.
func startRedis(t testing.TB, name, dir string, args func(port string) []string) *Redis {
	t.Helper()
	r := &Redis{server: newServer(t, name, name, dir), dir: dir}
	r.begin(func() {
		r.addr = FreeAddr(t)
		_, port, err := net.SplitHostPort(r.addr)
		require.NoError(t, err)
		r.args = args(port)
	})
	return r
}

// URL returns the store's URL with a prefix.
func (r *Redis) URL(prefix string) string { return fmt.Sprintf("redis://%s/0/%s", r.addr, prefix) }

// Wipe removes the data of a killed server.
func (r *Redis) Wipe() {
	require.NoError(r.t, os.RemoveAll(r.data()))
	require.NoError(r.t, os.RemoveAll(filepath.Join(r.dir, "dump.rdb")))
}

// Save implements Server.
func (r *Redis) Save() { copyDir(r.t, r.data()+".saved", r.data()) }

// Recall implements Server.
func (r *Redis) Recall() { copyDir(r.t, r.data(), r.data()+".saved") }

func (r *Redis) data() string { return filepath.Join(r.dir, "appendonlydir") }
