package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAKilledNodeIsSoonNotChosen (K6, E3): within --provider-ttl, on either kind of
// store, and events tell it. One that may be silent for long is not told yet then.
func TestAKilledNodeIsSoonNotChosen(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(*testing.T, *cluster){
		"etcd": func(*testing.T, *cluster) {}, "redis": func(t *testing.T, c *cluster) { ownRedis(t, c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--meta-timeout=60s") // nobody stops the store
			own(t, c)
			a, b, silent := c.start("a", "--provider-ttl=3s"), c.start("b"), c.start("silent", "--provider-ttl=2m")
			f := b.follow()
			registered(t, a, "f", smallChunk, 1)
			told := func(kind, node string) func() bool {
				return func() bool {
					return slices.ContainsFunc(f.events(), func(e event) bool { return e.Type == kind && e.NodeName == node })
				}
			}
			readBack(t, b.path("f")) // of a node that was stopped for seconds
			b.waitLocal("f")
			eventually(t, commandLimit, "b provides it, too", told("provider-up", "b"))
			b.must("drop", b.path("f"))
			eventually(t, commandLimit, "b provides it no more", told("provider-down", "b"))
			down := func() bool { // the last that was told of a; one that was stopped for seconds comes up again
				last := ""
				for _, e := range f.events() {
					if e.NodeName == "a" && (e.Type == "node-up" || e.Type == "node-down") {
						last = e.Type
					}
				}
				return last == "node-down"
			}
			alive := func() bool {
				for _, p := range b.copies("f").Providers {
					if p.Name == "a" && p.Alive {
						return true
					}
				}
				return false
			}
			eventually(t, commandLimit, "a provides", func() bool { return alive() && !down() })
			a.proc.kill()
			silent.proc.kill()
			// Ten times what is promised, and less than silent may still be silent: it
			// says each third of its time that it is alive.
			eventually(t, 10*3*time.Second, "a is not chosen any more", func() bool { return !alive() })
			eventually(t, 10*3*time.Second, "that is told", down)
			require.False(t, told("node-down", "silent")())
		})
	}
}
