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

// TestLinearizableSentinel: each client has links of its own to master, replica
// and Sentinels. A fail-over is to a replica that has all that was answered. What a fail-over may lose is shown by TestSentinelLosesChanges.
func TestLinearizableSentinel(t *testing.T) {
	t.Parallel()
	srv := metatest.StartSentinel(t)
	nets := metatest.Networks(t, srv.All()...)
	open := func(t *testing.T, prefix string, client int) meta.Slots {
		return open(t, srv.URL(prefix), redis.Options{}.WithDial(nets[client].Dial))
	}
	var down *metatest.Redis
	cut := func(l metatest.Link) { // from the master, which the Sentinels go on naming
		for _, n := range nets {
			n.To(down).Set(l)
		}
	}
	metatest.Linearizable(t, 2, open, append(metatest.LinkFaults(nets...),
		metatest.NoFault,
		metatest.Fault{Name: "stopped", Begin: func() { srv.Now(t).Pause() }, End: srv.Resume, For: 500 * time.Millisecond},
		metatest.Fault{
			Name: "failed over", Calm: true, For: 100 * time.Millisecond,
			Begin: func() { srv.CaughtUp(t); srv.Now(t).Kill() },
			End:   func() { srv.FailedOver(t) },
		},
		metatest.Fault{
			Name: "master cut off", For: 2 * time.Second,
			Begin: func() { down = srv.Now(t); cut(metatest.LinkSilent) },
			End:   func() { cut(metatest.LinkOpen) },
		},
		metatest.Fault{
			Name: "failed over unseen", Calm: true, For: 100 * time.Millisecond,
			Begin: func() { srv.CaughtUp(t); down = srv.Now(t); cut(metatest.LinkHalfOpen); down.Kill() },
			End:   func() { srv.FailedOver(t); cut(metatest.LinkOpen) },
		},
	)...)
}

// TestLinearizableCluster: as TestLinearizableSentinel, of one of the masters.
func TestLinearizableCluster(t *testing.T) {
	t.Parallel()
	srv := metatest.StartRedisCluster(t)
	nets := metatest.Networks(t, srv.Servers...)
	open := func(t *testing.T, prefix string, client int) meta.Slots {
		return open(t, srv.URL(prefix), redis.Options{}.WithDial(nets[client].Dial))
	}
	var down []*metatest.Redis
	each := func(do func(*metatest.Redis)) {
		for _, r := range down {
			do(r)
		}
	}
	cut := func(l metatest.Link) {
		for _, n := range nets {
			each(func(r *metatest.Redis) { n.To(r).Set(l) })
		}
	}
	metatest.Linearizable(t, 2, open, append(metatest.LinkFaults(nets...),
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
		metatest.Fault{
			Name: "masters cut off", For: 2 * time.Second,
			Begin: func() { down = srv.Masters()[:2]; cut(metatest.LinkSilent) },
			End:   func() { cut(metatest.LinkOpen) },
		},
		metatest.Fault{
			Name: "failed over unseen", Calm: true, For: 100 * time.Millisecond,
			Begin: func() {
				srv.CaughtUp(t)
				down = srv.Masters()[:1]
				cut(metatest.LinkHalfOpen)
				each((*metatest.Redis).Kill)
			},
			End: func() {
				each(func(r *metatest.Redis) { srv.Promote(t, r) })
				srv.FailedOver(t)
				each((*metatest.Redis).Restart)
				srv.CaughtUp(t)
				cut(metatest.LinkOpen)
			},
		},
	)...)
}
