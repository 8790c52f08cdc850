package etcd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/etcd"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// TestLinearizable: one server, which each client reaches over a link of its
// own. N1, N3, W4, W7, W8
func TestLinearizable(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	links := metatest.Links(t, srv.Addr())
	open := func(t *testing.T, prefix string, client int) meta.Slots {
		return open(t, fmt.Sprintf("etcd://%s/%s", links[client].Addr(), prefix), etcd.Options{})
	}
	faults := metatest.LinkFaults(links...)
	for i := range faults {
		// What is dead without a word shows in the second ping, after 13 s.
		faults[i].Once = faults[i].Name == "half open"
	}
	metatest.Linearizable(t, 2, open, append(faults,
		metatest.NoFault,
		metatest.Fault{Name: "killed", Begin: srv.Kill, End: srv.Restart, For: 300 * time.Millisecond},
		metatest.Fault{Name: "stopped", Begin: srv.Pause, End: srv.Resume, For: 2 * time.Second},
	)...)
}

// TestLinearizableMany: three members, whose leader dies, falls silent, or
// cannot be reached by some clients.
func TestLinearizableMany(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcdCluster(t)
	links := make([][]*metatest.Proxy, len(srv.Members)) // of each member, one a client
	for i, m := range srv.Members {
		links[i] = metatest.Links(t, m.Addr())
	}
	open := func(t *testing.T, prefix string, client int) meta.Slots {
		var addrs []string
		for i := range links { // not all begin with the same one
			addrs = append(addrs, links[(client+i)%len(links)][client].Addr())
		}
		return open(t, fmt.Sprintf("etcd://%s/%s", strings.Join(addrs, ","), prefix), etcd.Options{})
	}
	var leader *metatest.Etcd
	var cut []*metatest.Proxy
	set := func(l metatest.Link) {
		for _, p := range cut {
			p.Set(l)
		}
	}
	metatest.Linearizable(t, 2, open,
		metatest.Fault{Name: "leader killed", Begin: func() { leader = srv.Leader(t); leader.Kill() }, End: func() { leader.Restart() }, For: 2 * time.Second},
		metatest.Fault{Name: "leader stopped", Begin: func() { leader = srv.Leader(t); leader.Pause() }, End: func() { leader.Resume() }, For: 2 * time.Second},
		metatest.Fault{Name: "leader cut off", Begin: func() {
			leader = srv.Leader(t)
			for i, m := range srv.Members {
				if m == leader {
					cut = links[i]
				}
			}
			set(metatest.LinkSilent)
		}, End: func() { set(metatest.LinkOpen) }, For: 2 * time.Second},
	)
}
