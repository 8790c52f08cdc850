package etcd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta/storeurl"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]target{
		"etcd://h":                   {endpoints: []string{"http://h:2379"}, hosts: "h:2379", prefix: "p2p"},
		"etcd://a:1,b/x/y/":          {endpoints: []string{"http://a:1", "http://b:2379"}, hosts: "a:1,b:2379", prefix: "x/y"},
		"etcd://[::1],[fe80::1]:9/p": {endpoints: []string{"http://[::1]:2379", "http://[fe80::1]:9"}, hosts: "[::1]:2379,[fe80::1]:9", prefix: "p"},
		"etcd://u:p%3A%40@h":         {endpoints: []string{"http://h:2379"}, hosts: "h:2379", prefix: "p2p", user: "u", password: "p:@"},
	} {
		got, err := parseURL(raw, storeurl.Access{})
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	got, err := parseURL("etcds://h?server_name=n", storeurl.Access{})
	require.NoError(t, err)
	require.Equal(t, []string{"https://h:2379"}, got.endpoints)
	require.Equal(t, "n", got.tls.ServerName)
}

// FuzzURL: no error about a URL shows its password.
func FuzzURL(f *testing.F) {
	f.Add("u", "h:1/p?tls=true")
	f.Add("", "")
	f.Add("u:v@", "h,h:x/@?ca=1")
	f.Fuzz(func(t *testing.T, user, rest string) {
		const secret = "pa55word"
		if strings.ContainsAny(user, "/@?") || strings.Contains(user+rest, secret) {
			return
		}
		_, err := parseURL("etcd://"+user+":"+secret+"@"+rest, storeurl.Access{})
		if err != nil {
			require.NotContains(t, err.Error(), secret)
		}
	})
}

func FuzzNext(f *testing.F) {
	f.Add("7 5 name with spaces")
	f.Add("x")
	f.Fuzz(func(_ *testing.T, next string) { _, _, _, _ = parseNext(next) })
}
