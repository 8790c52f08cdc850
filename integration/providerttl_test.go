package integration

import (
	"testing"
	"time"
)

// TestAKilledNodeIsSoonNotChosen (K6): within --provider-ttl, on either kind of store.
func TestAKilledNodeIsSoonNotChosen(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(*testing.T, *cluster){
		"etcd": func(*testing.T, *cluster) {}, "redis": func(t *testing.T, c *cluster) { ownRedis(t, c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			own(t, c)
			a, b := c.start("a", "--provider-ttl=3s"), c.start("b")
			registered(t, a, "f", smallChunk, 1)
			alive := func() bool {
				for _, p := range b.copies("f").Providers {
					if p.Name == "a" && p.Alive {
						return true
					}
				}
				return false
			}
			eventually(t, 10*time.Second, "a provides", alive)
			a.proc.kill()
			// etcd looks for what has run out twice a second, and commands take
			// their time on a busy machine.
			eventually(t, 3*time.Second+2*time.Second, "a is not chosen any more", func() bool { return !alive() })
		})
	}
}
