package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// TestLinearizable: one server, which each client reaches over a link of its
// own. What it answered is in its file when it is killed. N1, N3, W4, W7, W8
func TestLinearizable(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedis(t)
	links := metatest.Links(t, srv.Addr())
	open := func(t *testing.T, prefix string, client int) meta.Slots {
		return open(t, fmt.Sprintf("redis://%s/0/%s", links[client].Addr(), prefix), redis.Options{})
	}
	metatest.Linearizable(t, 3, open, append(metatest.LinkFaults(links...),
		metatest.NoFault,
		metatest.Fault{Name: "killed", Begin: srv.Kill, End: srv.Restart, For: 300 * time.Millisecond},
		metatest.Fault{Name: "stopped", Begin: srv.Pause, End: srv.Resume, For: 2 * time.Second},
	)...)
}

// TestLinearizableSentinel: a fail-over to a replica that has all that was
// answered. What a fail-over may lose is shown by TestSentinelLosesChanges.
func TestLinearizableSentinel(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	open := func(t *testing.T, prefix string, client int) meta.Slots {
		return open(t, srv.URL(prefix), redis.Options{})
	}
	metatest.Linearizable(t, 2, open,
		metatest.NoFault,
		metatest.Fault{Name: "stopped", Begin: func() { srv.Now(t).Pause() }, End: srv.Resume, For: 500 * time.Millisecond},
		metatest.Fault{
			Name: "failed over", Calm: true, For: 100 * time.Millisecond,
			Begin: func() { srv.CaughtUp(t); srv.Now(t).Kill() },
			End:   func() { srv.FailedOver(t) },
		},
	)
}

// TestLinearizableCluster: as TestLinearizableSentinel, of one of the masters.
func TestLinearizableCluster(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	open := func(t *testing.T, prefix string, client int) meta.Slots {
		return open(t, srv.URL(prefix), redis.Options{})
	}
	var down []*metatest.Redis
	each := func(do func(*metatest.Redis)) {
		for _, r := range down {
			do(r)
		}
	}
	metatest.Linearizable(t, 2, open,
		metatest.NoFault,
		metatest.Fault{
			Name: "stopped", For: 500 * time.Millisecond,
			Begin: func() { down = srv.Masters(); each(func(r *metatest.Redis) { r.Pause() }) },
			End:   func() { each((*metatest.Redis).Resume) },
		},
		metatest.Fault{
			Name: "failed over", Calm: true, For: 100 * time.Millisecond,
			Begin: func() { srv.CaughtUp(t); down = srv.Masters()[:1]; each((*metatest.Redis).Kill) },
			End: func() {
				each(func(r *metatest.Redis) { srv.Promote(t, r) })
				srv.FailedOver(t)
				each((*metatest.Redis).Restart)
				srv.CaughtUp(t)
			},
		},
	)
}
