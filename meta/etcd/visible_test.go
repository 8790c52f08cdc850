package etcd_test

import (
	"bufio"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	srv := metatest.StartEtcd(t)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	watches := func() int {
		r, err := client.Get("http://" + srv.Addr() + "/metrics")
		require.NoError(t, err)
		defer r.Body.Close()
		for s := bufio.NewScanner(r.Body); s.Scan(); {
			var n int
			if _, err := fmt.Sscanf(s.Text(), "etcd_debugging_mvcc_watcher_total %d", &n); err == nil {
				return n
			}
		}
		require.Fail(t, "etcd does not count its watches")
		return 0
	}
	metatest.RunVisible(t, func(t *testing.T) meta.Slots { return open(t, srv.URL("x"), patient) }, watches)
}
