package stores_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/meta/stores"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"memory://", "etcd://127.0.0.1:1", "etcd://127.0.0.1,[::1]:7,localhost/some/prefix",
		"etcd://user:p%40ss@127.0.0.1:1/p", "etcds://127.0.0.1:1", "etcd://127.0.0.1:1?tls=true&insecure_skip_verify=1&server_name=x",
		"redis://127.0.0.1:1", "redis://:p%40ss@[::1]:1/3/some/prefix", "rediss://u:p@127.0.0.1:1",
		"redis+sentinel://u:p@127.0.0.1:1,127.0.0.1:2/service/0/p?sentinel_password=x", "redis+cluster://127.0.0.1:1,127.0.0.1:2/p?tls=true",
	} {
		s, err := stores.Open(t.Context(), url, stores.Options{})
		require.NoError(t, err, url)
		require.NoError(t, s.Close(), url)
	}
	for url, want := range map[string]string{
		"redis://h:6379,h2":                   "takes one host",
		"redis://secret@h":                    "USER:PASSWORD@",
		"redis://u:secret@h/x":                "not a number",
		"redis://u:secret@h/0/{x}":            "brace",
		"redis+sentinel://u:secret@h:1":       "SERVICE",
		"redis+cluster://u:secret@h/3":        "no database 3",
		"rediss://h?ca=/nonexistent":          "/nonexistent",
		"redis://h?sentinel_password=secret":  "without Sentinels",
		"http://u:secret@h:2379":              "write etcd://",
		"ftp://u:secret@h":                    "unknown scheme ftp://",
		"u:secret@h:2379":                     "no scheme",
		"":                                    "no scheme",
		"etcd://":                             "not HOST or HOST:PORT",
		"etcd://h1,,h2":                       "not HOST or HOST:PORT",
		"etcd://h:port":                       "not HOST or HOST:PORT",
		"etcd://secret@h":                     "USER:PASSWORD@",
		"etcd://u:/secret@h":                  "percent-encoded",
		"etcd://u:sec%zzret@h":                "percent-encoded",
		"etcd://u:secret@h?nonsense=1":        "unknown option",
		"etcd://u:secret@h?tls=maybe":         "neither true nor false",
		"etcd://u:secret@h?ca=/x":             "without tls=true",
		"etcds://u:secret@h?ca=/nonexistent":  "/nonexistent",
		"etcds://u:secret@h?cert=/x":          "go together",
		"etcd://u:secret@h?tls=true&tls=true": "2 times",
	} {
		_, err := stores.Open(t.Context(), url, stores.Options{})
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "secret", url)
	}
}
