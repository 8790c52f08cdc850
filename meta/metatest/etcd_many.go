package metatest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// EtcdCluster is an etcd of three members.
type EtcdCluster struct{ Members []*Etcd }

// StartEtcdCluster starts three processes. The test's end kills them.
func StartEtcdCluster(t testing.TB) *EtcdCluster {
	t.Helper()
	c := &EtcdCluster{}
	for range 3 {
		dir := t.TempDir()
		e := &Etcd{server: newServer(t, "etcd", "etcd-server", dir), data: filepath.Join(dir, "data")}
		c.Members = append(c.Members, e)
	}
	for try := 0; ; try++ { // again: another test may have taken a port meanwhile
		c.settle(t)
		if c.start(0, 1, 2) {
			break
		}
		require.Less(t, try, 5, "etcd does not start: %s", c.Members[0].output())
		for _, e := range c.Members {
			e.Kill()
			e.Wipe()
		}
	}
	for _, e := range c.Members {
		t.Cleanup(e.Kill)
	}
	c.Leader(t)
	return c
}

// settle gives the members their addresses.
func (c *EtcdCluster) settle(t testing.TB) {
	addrs := freeAddrs(t, 2*len(c.Members))
	var names []string
	for i := range c.Members {
		names = append(names, fmt.Sprintf("m%d=http://%s", i, addrs[2*i+1]))
	}
	for i, e := range c.Members {
		e.addr = addrs[2*i]
		client, peer := "http://"+addrs[2*i], "http://"+addrs[2*i+1]
		e.args = []string{
			"--data-dir", e.data, "--name", fmt.Sprint("m", i), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(names, ","),
		}
	}
}

// start starts members all at once: none of them answers before most are there.
func (c *EtcdCluster) start(members ...int) bool {
	started := make(chan bool, len(members))
	for _, i := range members {
		go func() { started <- c.Members[i].start() }()
	}
	all := true
	for range members {
		all = <-started && all
	}
	return all
}

// Restart starts killed members, by their numbers.
func (c *EtcdCluster) Restart(members ...int) {
	require.True(c.Members[0].t, c.start(members...), "etcd does not start: %s", c.Members[0].output())
}

// Leader waits until there is a leader, and returns it.
func (c *EtcdCluster) Leader(t testing.TB) *Etcd {
	t.Helper()
	var leader *Etcd
	require.Eventually(t, func() bool {
		for _, e := range c.Members {
			if e.leads() {
				leader = e
			}
		}
		return leader != nil
	}, soon, 20*time.Millisecond)
	return leader
}

// leads reports whether a member answers, and says that it is the leader.
func (e *Etcd) leads() bool {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Post("http://"+e.addr+"/v3/maintenance/status", "application/json", bytes.NewReader([]byte("{}")))
	if err != nil {
		return false
	}
	defer r.Body.Close()
	var says struct {
		Leader string `json:"leader"`
		Header struct {
			Member string `json:"member_id"`
		} `json:"header"`
	}
	return json.NewDecoder(r.Body).Decode(&says) == nil && says.Leader == says.Header.Member && says.Leader != ""
}

// URL returns the store's URL with a prefix.
func (c *EtcdCluster) URL(prefix string) string {
	var addrs []string
	for _, e := range c.Members {
		addrs = append(addrs, e.addr)
	}
	return fmt.Sprintf("etcd://%s/%s", strings.Join(addrs, ","), prefix)
}
