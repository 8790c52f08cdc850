package redis_test

import (
	"strings"
	"testing"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	run := func(name, command string, url func(string) string, servers ...*metatest.Redis) {
		t.Run(name, func(t *testing.T) {
			watches := func() (n int) {
				for _, r := range servers {
					n += len(strings.Fields(r.Run("pubsub", command, "x:{d/*")))
				}
				return n
			}
			metatest.RunVisible(t, func(t *testing.T) meta.Slots { return open(t, url("x"), patient) }, watches)
		})
	}
	one := metatest.StartRedis(t)
	run("standalone", "channels", one.URL, one)
	over := metatest.StartSentinel(t)
	run("sentinel", "channels", over.URL, over.Master)
	many := metatest.StartRedisCluster(t)
	run("cluster", "shardchannels", many.URL, many.Servers...)
}
