package redis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/storeurl"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]target{
		"redis://h":                  {form: standalone, endpoints: []string{"h:6379"}, hosts: "h:6379", prefix: "p2p"},
		"redis://[::1]:7/3":          {form: standalone, endpoints: []string{"[::1]:7"}, hosts: "[::1]:7", db: 3, prefix: "p2p"},
		"redis://:p%3A%40%2F@h/0/x/": {form: standalone, endpoints: []string{"h:6379"}, hosts: "h:6379", password: "p:@/", prefix: "x"},
		"redis+sentinel://u:p@a,b:1/m/2/x/y?sentinel_user=s&sentinel_password=q": {
			form: sentinel, endpoints: []string{"a:26379", "b:1"}, hosts: "a:26379,b:1", service: "m", db: 2, prefix: "x/y",
			user: "u", password: "p", sentinelUser: "s", sentinelPassword: "q",
		},
		"redis+cluster://a,b:1":     {form: cluster, endpoints: []string{"a:6379", "b:1"}, hosts: "a:6379,b:1", prefix: "p2p"},
		"redis+cluster://a/x/y":     {form: cluster, endpoints: []string{"a:6379"}, hosts: "a:6379", prefix: "x/y"},
		"redis+cluster://a/0/x?tls": {},
	} {
		got, err := parseURL(raw, storeurl.Access{})
		if want.form == "" { // the same, by an option without a value
			require.NoError(t, err, raw)
			require.Nil(t, got.tls)
			continue
		}
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	got, err := parseURL("rediss://h?server_name=n", storeurl.Access{})
	require.NoError(t, err)
	require.Equal(t, "n", got.tls.ServerName)
}

// FuzzURL: no error about a URL shows its password.
func FuzzURL(f *testing.F) {
	f.Add("redis", "u", "h:1/0/p?tls=true")
	f.Add("redis+sentinel", "", "h,h/s/0?sentinel_password=x")
	f.Add("redis+cluster", "u:v@", "h,h:x/@?ca=1")
	f.Fuzz(func(t *testing.T, scheme, user, rest string) {
		const secret = "pa55word"
		if len(user+rest+scheme) > 1000 || contains(user, "/@?") || contains(scheme, ":/?@") || contains(user+rest+scheme, secret[:4]) {
			return
		}
		if _, err := parseURL(scheme+"://"+user+":"+secret+"@"+rest, storeurl.Access{}); err != nil {
			require.NotContains(t, err.Error(), secret)
		}
	})
}

func contains(s, chars string) bool {
	for _, c := range chars {
		for _, d := range s {
			if c == d {
				return true
			}
		}
	}
	return false
}

func TestParseItem(t *testing.T) {
	t.Parallel()
	const at = "00000000000000070000000000000012"
	event := func(field string, value []byte) meta.Event {
		return meta.Event{Record: meta.Record{Slot: "d/1", Field: field, Value: value, Version: 12}, SlotVersion: 12}
	}
	for raw, want := range map[string]item{
		at:                           {},
		at + "S3:a:b0:D1::L1:.3:4:D": {events: []meta.Event{event("a:b", []byte{}), event(":", nil), event(".", []byte("4:D"))}, leased: true},
		at + "!":                     {cut: true},
	} {
		want.before, want.version = at[:16], at[16:]
		got, err := parseItem("d/1", raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	for _, raw := range []string{"", at[1:], at + "S", at + "S1:a", at + "X1:a", at + "D9:a", at + "D-1:a", at + "S1:a99999999999:b", "0000000000000007x000000000000012"} {
		_, err := parseItem("d/1", raw)
		require.ErrorIs(t, err, meta.ErrFormat, raw)
	}
}

func TestParseRecord(t *testing.T) {
	t.Parallel()
	const v = "0000000000000012"
	parse := func(raw string) (meta.Record, bool, error) {
		var r meta.Record
		leased, err := parseRecord(&r, raw, 100)
		return r, leased, err
	}
	for raw, want := range map[string]struct {
		rec    meta.Record
		leased bool
	}{
		v + "-":                                  {meta.Record{Version: 12, Value: []byte{}}, false},
		v + "-L\x00":                             {meta.Record{Version: 12, Value: []byte("L\x00")}, false},
		v + "L0000000000000101abcdefghijklmnopv": {meta.Record{Version: 12, Value: []byte("v")}, true},
		v + "L0000000000000100abcdefghijklmnopv": {meta.Record{}, true},
	} {
		got, leased, err := parse(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want.rec, got, raw)
		require.Equal(t, want.leased, leased, raw)
	}
	for _, raw := range []string{"", v, v + "x", "x" + v[1:] + "-", v + "L0000000000000101abc", v + "Lx000000000000101abcdefghijklmnopv"} {
		_, _, err := parse(raw)
		require.ErrorIs(t, err, meta.ErrFormat, raw)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("0000000000000012L0000000000000101abcdefghijklmnopv")
	f.Add("00000000000000070000000000000012S1:a2:bcD1:x")
	f.Fuzz(func(_ *testing.T, raw string) {
		var r meta.Record
		_, _ = parseRecord(&r, raw, 1)
		_, _ = parseItem("d/1", raw)
	})
}

func FuzzTold(f *testing.F) {
	head := digits(1) + digits(2)
	for _, s := range []string{head, head + "!", head + "S1:a2:xy-", head + "D1:a+2:xy", head + "L1:.4:node+0:", "", head + "S9:a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		it, before, err := parseTold("d/1", raw)
		if err != nil {
			require.ErrorIs(t, err, meta.ErrFormat)
			return
		}
		require.Len(t, before, len(it.events))
	})
}
