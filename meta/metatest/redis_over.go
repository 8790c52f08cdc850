package metatest

import (
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// IsMaster reports whether a server says that it is one.
func (r *Redis) IsMaster() bool { return strings.HasPrefix(r.Run("role"), "master") }

// Follows reports whether a server is a replica that its master answers.
func (r *Redis) Follows() bool {
	role := r.Run("role")
	return strings.HasPrefix(role, "slave") && strings.Contains(role, "connected")
}

// waited asks a master to wait until a replica has all that it has: WAIT is for
// what was there when the connection's last command was done.
func (r *Redis) waited() bool {
	_, port, _ := net.SplitHostPort(r.addr)
	cmd := exec.Command("redis-cli", "-p", port)
	cmd.Stdin = strings.NewReader("ping\nwait 1 1000\n")
	out, err := cmd.Output()
	return err == nil && strings.TrimSpace(string(out)) == "PONG\n1"
}

// Now returns the server that is master now.
func (s *RedisSentinel) Now(t testing.TB) *Redis {
	t.Helper()
	var now *Redis
	require.Eventually(t, func() bool {
		for _, r := range []*Redis{s.Master, s.Replica} {
			if r.IsMaster() {
				now = r
			}
		}
		return now != nil
	}, soon, 20*time.Millisecond)
	return now
}

// Resume lets both servers go on.
func (s *RedisSentinel) Resume() {
	s.Master.Resume()
	s.Replica.Resume()
}

// CaughtUp waits until the replica has all that the master has.
func (s *RedisSentinel) CaughtUp(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Now(t).waited() }, soon, 20*time.Millisecond)
}

// Promote lets the Sentinels fail over to a server, as they do when they find that
// the master does not answer; for that they have too much patience here. It waits
// until all of them say that it is the master.
func (s *RedisSentinel) Promote(t testing.TB, r *Redis) {
	t.Helper()
	var begun time.Time
	require.Eventually(t, func() bool {
		say := s.saying(t, r)
		// One begins it, and the others hear of it.
		if len(say) == 0 && time.Since(begun) > 15*time.Second {
			one := s.Sentinels[rand.IntN(len(s.Sentinels))]
			if strings.TrimSpace(one.Run("sentinel", "failover", "main")) == "OK" {
				begun = time.Now()
			}
		}
		return len(say) == len(s.Sentinels) && r.IsMaster()
	}, soon, 50*time.Millisecond)
}

// saying returns the Sentinels who say that a server is the master.
func (s *RedisSentinel) saying(t testing.TB, r *Redis) (out []*Redis) {
	_, port, err := net.SplitHostPort(r.addr)
	require.NoError(t, err)
	for _, one := range s.Sentinels {
		if strings.Contains(one.Run("sentinel", "get-master-addr-by-name", "main"), port) {
			out = append(out, one)
		}
	}
	return out
}

// FailedOver makes the one server that is left the master, for all Sentinels, and
// starts the other one again as its replica. If it came back before, it would be
// a master for whoever asks a Sentinel that lags.
func (s *RedisSentinel) FailedOver(t testing.TB) {
	t.Helper()
	for _, r := range []*Redis{s.Master, s.Replica} {
		if !r.dead() {
			s.Promote(t, r)
		}
	}
	host, port, err := net.SplitHostPort(s.Now(t).addr)
	require.NoError(t, err)
	for _, r := range []*Redis{s.Master, s.Replica} {
		if r.dead() {
			r.Restart()
			r.Run("replicaof", host, port)
			require.Eventually(t, r.Follows, soon, 50*time.Millisecond)
		}
	}
}

// dead reports whether the server was killed.
func (s *server) dead() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// CaughtUp waits until each master has a replica that has all that it has.
func (c *RedisCluster) CaughtUp(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		masters := 0
		for _, r := range c.Servers {
			if !r.dead() && r.IsMaster() {
				masters++
				if !r.waited() {
					return false
				}
			}
		}
		return masters == 3
	}, soon, 50*time.Millisecond)
}

// Promote lets the replica of a killed master take its place, as replicas do when
// they find that their master does not answer; for that they have too much
// patience here.
func (c *RedisCluster) Promote(t testing.TB, master *Redis) {
	t.Helper()
	_, port, err := net.SplitHostPort(master.addr)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for _, r := range c.Servers {
			if r.dead() {
				continue
			}
			if role := strings.Fields(r.Run("role")); len(role) > 2 && role[0] == "slave" && role[2] == port {
				r.Run("cluster", "failover", "takeover")
				return r.IsMaster()
			}
		}
		return false
	}, soon, 50*time.Millisecond)
}

// wait sets how long a server may be silent.
func (c *RedisCluster) wait(t testing.TB, ms string) {
	t.Helper()
	for _, r := range c.Servers {
		if !r.dead() {
			require.Eventually(t, func() bool {
				return strings.TrimSpace(r.Run("config", "set", "cluster-node-timeout", ms)) == "OK"
			}, soon, 20*time.Millisecond)
		}
	}
}

// FailedOver waits until three masters are there again.
func (c *RedisCluster) FailedOver(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		masters := 0
		for _, r := range c.Servers {
			if !r.dead() && r.IsMaster() && strings.Contains(r.Run("cluster", "info"), "cluster_state:ok") {
				masters++
			}
		}
		return masters == 3
	}, soon, 50*time.Millisecond)
}

// Masters returns the servers that are masters now.
func (c *RedisCluster) Masters() (out []*Redis) {
	for _, r := range c.Servers {
		if !r.dead() && r.IsMaster() {
			out = append(out, r)
		}
	}
	return out
}
