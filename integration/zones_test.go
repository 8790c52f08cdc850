package integration

import (
	"io"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// imported returns how many bytes a node got from nodes of other zones.
func (n *node) imported() (bytes int64) {
	var all struct {
		Peers []struct {
			Zone          string `json:"zone"`
			Self          bool   `json:"self"`
			ReceivedBytes int64  `json:"received_bytes"`
		} `json:"peers"`
	}
	n.json(&all, "peers", "--all")
	own := ""
	for _, p := range all.Peers {
		if p.Self {
			own = p.Zone
		}
	}
	require.NotEmpty(n.t, own)
	for _, p := range all.Peers {
		if p.Zone != own {
			bytes += p.ReceivedBytes
		}
	}
	return bytes
}

// TestAFileEntersAZoneOnce has the nodes of two zones fetch a file at once: what one
// of a zone has brought in, the others get from there. One more reads its begin alone,
// and does not wait for the others.
func TestAFileEntersAZoneOnce(t *testing.T) {
	t.Parallel()
	// Readers in order wait for the same blocks at once, and on a busy machine some of
	// them longer than for what others of their zone are to bring in.
	for by, most := range map[string]float64{"warm": 1.3, "cat": 1.7} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, bigBlocks)
			const (
				size = 64 << 20
				rate = "--upload-limit=4MiB" // one copy takes 16 s
			)
			zones := map[string][]*node{}
			for _, name := range []string{"a", "b", "c", "d", "e", "f", "glance"} {
				zone := "east"
				if name >= "d" {
					zone = "west"
				}
				zones[zone] = append(zones[zone], c.start(name, "--zone="+zone, rate))
			}
			registered(t, zones["east"][0], "f", size, 1)
			var wg sync.WaitGroup
			for _, nodes := range zones {
				for _, n := range nodes {
					cmd := n.command("warm", n.path("f"))
					switch {
					case n.name == "glance":
						cmd = exec.Command("head", "-c", "4096", n.path("f"))
					case by == "cat":
						cmd = exec.Command("cat", n.path("f"))
						cmd.Stdout = io.Discard
					}
					wg.Go(func() {
						r := runCmd(t, benchLimit, cmd)
						t.Logf("%s took %v", n.name, r.took)
						if n.name == "glance" {
							assert.Len(t, r.out, 4096)
							assert.Less(t, r.took, 15*time.Second)
						}
					})
				}
			}
			wg.Wait()
			for zone, nodes := range zones {
				var got int64
				for _, n := range nodes {
					if n.name != "glance" {
						n.waitLocal("f")
					}
					got += n.imported()
				}
				t.Logf("%.2f copies into %s", float64(got)/size, zone)
				require.LessOrEqual(t, float64(got), most*size, zone)
			}
		})
	}
}
