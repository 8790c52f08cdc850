package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAKilledNodeIsSoonNotChosen (K6, E3): within --provider-ttl, on either kind of
// store, and events tell it.
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
			f := b.follow()
			registered(t, a, "f", smallChunk, 1)
			told := func(kind, node string) func() bool {
				return func() bool {
					return slices.ContainsFunc(f.events(), func(e event) bool { return e.Type == kind && e.NodeName == node })
				}
			}
			must(t, "cat", b.path("f"))
			b.waitLocal("f")
			eventually(t, 20*time.Second, "b provides it, too", told("provider-up", "b"))
			b.must("drop", b.path("f"))
			eventually(t, 20*time.Second, "b provides it no more", told("provider-down", "b"))
			require.False(t, told("node-down", "a")())
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
			// Less than the 10 s that it would be without the flag.
			eventually(t, 6*time.Second, "that is told", told("node-down", "a"))
		})
	}
}
