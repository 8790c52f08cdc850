package meta

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

// FuzzOrigins: what names and tombstones say of since when they stand, and that
// what is written of it is read again.
func FuzzOrigins(f *testing.F) {
	e, _ := MarshalEntry(fileEntry(), nil)
	at := Origin{Epoch: Epoch{7}, Version: 9}
	gone, _ := marshalGone(at, time.Unix(5, 0))
	f.Add(e)
	f.Add(withOrigin(e, at))
	f.Add(append(stamped(e, Epoch{8}), unknownField()...))
	f.Add(gone)
	info := newStoreInfo(chunk.DefaultChunkSize)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := Record{Field: "a", Value: b, Version: 3}
		if _, _, err := info.unmarshalGone(r); err != nil {
			require.ErrorIs(t, err, ErrFormat)
		}
		if _, err := info.originOf(r); err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		r.Value = withOrigin(b, at)
		got, err := info.originOf(r)
		require.NoError(t, err)
		require.Equal(t, at, got)
	})
}

// FuzzRedactURL: what is shown of a URL has no password, whatever else is in it.
func FuzzRedactURL(f *testing.F) {
	for _, s := range []string{"h:1/p?x=1", "[::1]:1/0/p#f", "h/@:", "%zz", ""} {
		f.Add("redis", "u", s)
	}
	f.Fuzz(func(t *testing.T, scheme, user, rest string) {
		const secret = "pa55word"
		if len(scheme)+len(user)+len(rest) > 1000 {
			return
		}
		for _, s := range []string{scheme, user, rest} {
			if strings.Contains(s, secret[:4]) {
				return
			}
		}
		if strings.ContainsAny(user+scheme, "/@?#:") {
			return
		}
		require.NotContains(t, RedactURL(scheme+"://"+user+":"+secret+"@"+rest), secret)
	})
}
