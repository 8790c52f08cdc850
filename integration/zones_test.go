package integration

import (
	"sync"
	"testing"

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
// of a zone has brought in, the others get from there.
func TestAFileEntersAZoneOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const size = 60 * smallChunk
	zones := map[string][]*node{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		zone := "east"
		if name >= "d" {
			zone = "west"
		}
		zones[zone] = append(zones[zone], c.start(name, "--zone="+zone, "--upload-limit=1MiB"))
	}
	registered(t, zones["east"][0], "f", size, 1)
	var wg sync.WaitGroup
	for _, nodes := range zones {
		for _, n := range nodes {
			wg.Go(func() { runCmd(t, benchLimit, n.command("warm", n.path("f"))) })
		}
	}
	wg.Wait()
	for zone, nodes := range zones {
		var got int64
		for _, n := range nodes {
			require.True(t, n.local("f"), n.name)
			got += n.imported()
		}
		t.Logf("%.2f copies into %s", float64(got)/size, zone)
		require.LessOrEqual(t, float64(got), 1.3*size, zone)
	}
}
