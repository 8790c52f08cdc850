package metatest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Run sends a command to the server by redis-cli, and returns what it says.
func (r *Redis) Run(args ...string) string {
	_, port, _ := net.SplitHostPort(r.addr)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // it may be stopped
	defer cancel()
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-p", port}, args...)...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// Milliseconds after which a server that is silent counts as down. A server that
// stands still, on a machine that has much else to do, is no reason to fail over
// that a test has asked for, and a fail-over loses changes. A Cluster whose servers
// are to learn of each other needs more haste.
const (
	patient = "600000"
	hasty   = "2000"
)

// RedisCluster is a Cluster of three masters with a replica each.
type RedisCluster struct{ Servers []*Redis }

// StartRedisCluster starts six processes. The test's end kills them.
func StartRedisCluster(t *testing.T) *RedisCluster {
	t.Helper()
	c := &RedisCluster{}
	var addrs []string
	for range 6 {
		dir := t.TempDir()
		r := startRedis(t, "redis-server", dir, func(port string) []string {
			_, bus, err := net.SplitHostPort(FreeAddr(t))
			require.NoError(t, err)
			return append(serverArgs(port, dir), "--cluster-enabled", "yes", "--cluster-port", bus,
				"--cluster-node-timeout", patient, "--cluster-replica-validity-factor", "0")
		})
		c.Servers = append(c.Servers, r)
		addrs = append(addrs, r.addr)
	}
	c.wait(t, hasty)
	args := append(append([]string{"--cluster", "create"}, addrs...), "--cluster-replicas", "1", "--cluster-yes")
	out, err := exec.Command("redis-cli", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Eventually(t, func() bool {
		for _, r := range c.Servers {
			if !strings.Contains(r.Run("cluster", "info"), "cluster_state:ok") {
				return false
			}
		}
		return strings.Count(c.Servers[0].Run("cluster", "nodes"), " connected") == 6 && len(c.replicas()) == 3
	}, soon, 100*time.Millisecond)
	c.wait(t, patient)
	return c
}

// replicas returns the servers that follow another and have caught up.
func (c *RedisCluster) replicas() []*Redis {
	var out []*Redis
	for _, r := range c.Servers {
		if role := r.Run("role"); strings.HasPrefix(role, "slave") && strings.Contains(role, "connected") {
			out = append(out, r)
		}
	}
	return out
}

// All returns all servers.
func (s *RedisSentinel) All() []*Redis {
	return append([]*Redis{s.Master, s.Replica}, s.Sentinels...)
}

// URL returns the store's URL with a prefix.
func (c *RedisCluster) URL(prefix string) string {
	return fmt.Sprintf("redis+cluster://%s,%s/%s", c.Servers[0].addr, c.Servers[1].addr, prefix)
}

// Master returns the server that has a key.
func (c *RedisCluster) Master(t *testing.T, key string) *Redis {
	t.Helper()
	var found *Redis
	require.Eventually(t, func() bool {
		for _, r := range c.Servers {
			if !r.IsMaster() {
				continue
			}
			if there := strings.TrimSpace(r.Run("exists", key)); there == "0" || there == "1" {
				found = r
				return true
			}
		}
		return false
	}, soon, 50*time.Millisecond)
	return found
}

// RedisSentinel is a master, a replica of it, and three Sentinels.
type RedisSentinel struct {
	Master, Replica *Redis // as they are at first
	Sentinels       []*Redis
}

// StartSentinel starts five processes. The test's end kills them.
func StartSentinel(t *testing.T) *RedisSentinel {
	t.Helper()
	s := &RedisSentinel{Master: StartRedis(t)}
	_, port, err := net.SplitHostPort(s.Master.addr)
	require.NoError(t, err)
	s.Replica = StartRedis(t, "--replicaof", "127.0.0.1 "+port)
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, port))
	}
	require.Eventually(t, func() bool {
		for _, r := range s.Sentinels {
			info := r.Run("info", "sentinel")
			if !strings.Contains(info, "status=ok") || !strings.Contains(info, "slaves=1,sentinels=3") {
				return false
			}
		}
		return s.Replica.Follows()
	}, soon, 100*time.Millisecond)
	return s
}

// URL returns the store's URL with a prefix.
func (s *RedisSentinel) URL(prefix string) string {
	var addrs []string
	for _, r := range s.Sentinels {
		addrs = append(addrs, r.addr)
	}
	return fmt.Sprintf("redis+sentinel://%s/main/0/%s", strings.Join(addrs, ","), prefix)
}

// startSentinel starts one Sentinel of the master at a port.
func startSentinel(t *testing.T, master string) *Redis {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf") // it writes what it learns there
	require.NoError(t, os.WriteFile(conf, []byte(strings.Join([]string{
		"sentinel monitor main 127.0.0.1 " + master + " 2", "sentinel down-after-milliseconds main " + patient,
		"sentinel failover-timeout main 3000", "dir " + dir, "bind 127.0.0.1", "",
	}, "\n")), 0o600))
	return startRedis(t, "redis-sentinel", dir, func(port string) []string { return []string{conf, "--port", port} })
}
