package redis_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// TestOutages: one server, over a link. O1, O2, O4
func TestOutages(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	link := metatest.NewProxy(t, srv.Addr())
	role := func(args ...string) func() {
		return func() {
			require.Eventually(t, func() bool {
				return strings.TrimSpace(srv.Run(append([]string{"replicaof"}, args...)...)) == "OK"
			}, soon, tick)
		}
	}
	metatest.RunOutages(t, func(t *testing.T) meta.Slots { return open(t, "redis://"+link.Addr()+"/0/x", redis.Options{}) },
		append(metatest.LinkOutages(link),
			metatest.Outage{Name: "stopped", Begin: srv.Pause, End: srv.Resume},
			metatest.Outage{Name: "killed", Begin: srv.Kill, End: srv.Restart},
			metatest.Outage{Name: "read-only replica", Begin: role("127.0.0.1", "1"), End: role("no", "one")},
		)...)
}

// TestOutagesSentinel: all links, and a fail-over. O1, O2, O4
func TestOutagesSentinel(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	links := metatest.NewNetwork(t, srv.All()...)
	opts := redis.Options{}.WithDial(links.Dial)
	metatest.RunOutages(t, func(t *testing.T) meta.Slots { return open(t, srv.URL("x"), opts) },
		append(metatest.LinkOutages(links), metatest.Outage{
			Name: "fail-over", Passing: true,
			Begin: func() { srv.CaughtUp(t); srv.Now(t).Kill() },
			End:   func() { srv.FailedOver(t) },
		})...)
}

// TestOutagesCluster: all links, no server answers, and one master fails over.
// O1, O2, O4
func TestOutagesCluster(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	links := metatest.NewNetwork(t, srv.Servers...)
	opts := redis.Options{}.WithDial(links.Dial)
	var down []*metatest.Redis
	metatest.RunOutages(t, func(t *testing.T) meta.Slots { return open(t, srv.URL("x"), opts) }, append(metatest.LinkOutages(links),
		metatest.Outage{
			Name:  "stopped",
			Begin: func() { down = srv.Servers; each(down, func(r *metatest.Redis) { r.Pause() }) },
			End:   func() { each(down, func(r *metatest.Redis) { r.Resume() }) },
		},
		metatest.Outage{
			Name: "fail-over", Passing: true,
			Begin: func() { srv.CaughtUp(t); down = srv.Masters()[:1]; down[0].Kill() },
			End:   func() { srv.Promote(t, down[0]); srv.FailedOver(t); down[0].Restart(); srv.CaughtUp(t) },
		},
	)...)
}

func each(servers []*metatest.Redis, do func(*metatest.Redis)) {
	for _, r := range servers {
		do(r)
	}
}

func TestLost(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	metatest.RunLost(t, srv, func(t *testing.T, prefix string) meta.Slots { return open(t, srv.URL(prefix), redis.Options{}) })
}

func TestLostSentinel(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	metatest.RunLost(t, srv, func(t *testing.T, prefix string) meta.Slots { return open(t, srv.URL(prefix), redis.Options{}) })
}

func TestLostCluster(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	metatest.RunLost(t, srv, func(t *testing.T, prefix string) meta.Slots { return open(t, srv.URL(prefix), redis.Options{}) })
}
