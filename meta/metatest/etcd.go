package metatest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Etcd is a real etcd server in a process of its own, on loopback.
type Etcd struct {
	*server
	data string
}

var _ Server = (*Etcd)(nil)

// StartEtcd starts the etcd of this machine with default limits. The test's
// end kills it.
func StartEtcd(t *testing.T) *Etcd {
	t.Helper()
	dir := t.TempDir()
	e := &Etcd{server: newServer(t, "etcd", "etcd-server", dir), data: filepath.Join(dir, "data")}
	e.begin(func() {
		require.NoError(t, os.RemoveAll(e.data)) // of a try before
		addrs := freeAddrs(t, 2)
		e.addr = addrs[0]
		client, peer := "http://"+addrs[0], "http://"+addrs[1]
		e.args = []string{
			"--data-dir", e.data, "--name", "test",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "test=" + peer,
			"--log-level", "error",
		}
	})
	return e
}

// URL returns the store's URL with a prefix.
func (e *Etcd) URL(prefix string) string { return fmt.Sprintf("etcd://%s/%s", e.addr, prefix) }

// Wipe removes the data of a killed server.
func (e *Etcd) Wipe() { require.NoError(e.t, os.RemoveAll(e.data)) }

// Save implements Server.
func (e *Etcd) Save() { copyDir(e.t, e.data+".saved", e.data) }

// Recall implements Server.
func (e *Etcd) Recall() { copyDir(e.t, e.data, e.data+".saved") }
