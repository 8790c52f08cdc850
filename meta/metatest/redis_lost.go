package metatest

import (
	"time"

	"github.com/stretchr/testify/require"
)

var (
	_ Server = (*RedisSentinel)(nil)
	_ Server = (*RedisCluster)(nil)
)

// Kill ends all of the group, the Sentinels first: they would fail over.
func (s *RedisSentinel) Kill() {
	for _, r := range s.Sentinels {
		r.Kill()
	}
	s.Master.Kill()
	s.Replica.Kill()
}

// Restart starts all of a killed group, whose master is the one that it was at first.
func (s *RedisSentinel) Restart() {
	s.Master.Restart()
	s.Replica.Restart()
	require.Eventually(s.Master.t, s.Replica.Follows, soon, 20*time.Millisecond)
	for _, r := range s.Sentinels {
		r.Restart()
	}
}

// Wipe implements Server.
func (s *RedisSentinel) Wipe() { s.Master.Wipe(); s.Replica.Wipe() }

// Save implements Server.
func (s *RedisSentinel) Save() { s.Master.Save(); s.Replica.Save() }

// Recall implements Server.
func (s *RedisSentinel) Recall() { s.Master.Recall(); s.Replica.Recall() }

func (c *RedisCluster) each(do func(*Redis)) {
	for _, r := range c.Servers {
		do(r)
	}
}

// Kill ends all servers.
func (c *RedisCluster) Kill() { c.each(func(r *Redis) { r.Kill() }) }

// Restart starts all servers of a killed Cluster, and waits until it is whole.
func (c *RedisCluster) Restart() {
	c.each((*Redis).Restart)
	c.FailedOver(c.Servers[0].t)
	c.CaughtUp(c.Servers[0].t)
}

// Wipe implements Server: the servers stay a Cluster.
func (c *RedisCluster) Wipe() { c.each((*Redis).Wipe) }

// Save implements Server.
func (c *RedisCluster) Save() { c.each((*Redis).Save) }

// Recall implements Server.
func (c *RedisCluster) Recall() { c.each((*Redis).Recall) }
