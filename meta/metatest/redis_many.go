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
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // it may be stopped
	defer cancel()
	out, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-p", port}, args...)...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// RedisCluster is a Cluster of three masters with a replica each.
type RedisCluster struct{ Servers []*Redis }

// StartRedisCluster starts six processes. The test's end kills them.
func StartRedisCluster(t *testing.T) *RedisCluster {
	t.Helper()
	c := &RedisCluster{}
	var addrs []string
	for range 6 {
		_, bus, err := net.SplitHostPort(freeAddr(t))
		require.NoError(t, err)
		r := StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000",
			"--cluster-replica-validity-factor", "0")
		c.Servers = append(c.Servers, r)
		addrs = append(addrs, r.addr)
	}
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
	}, 60*time.Second, 100*time.Millisecond)
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
			if strings.HasPrefix(r.Run("role"), "master") && !strings.Contains(r.Run("exists", key), "MOVED") {
				found = r
				return true
			}
		}
		return false
	}, 30*time.Second, 50*time.Millisecond)
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
		return strings.Contains(s.Replica.Run("role"), "connected")
	}, 60*time.Second, 100*time.Millisecond)
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

// startSentinel starts one Sentinel of the master at a port. It fails a master
// over that was silent for a second.
func startSentinel(t *testing.T, master string) *Redis {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf") // it writes what it learns there
	require.NoError(t, os.WriteFile(conf, []byte(strings.Join([]string{
		"sentinel monitor main 127.0.0.1 " + master + " 2", "sentinel down-after-milliseconds main 1000",
		"sentinel failover-timeout main 3000", "dir " + dir, "bind 127.0.0.1", "",
	}, "\n")), 0o600))
	return startRedis(t, "redis-sentinel", dir, func(port string) []string { return []string{conf, "--port", port} })
}
