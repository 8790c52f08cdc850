package tcp

import (
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

func TestPathRoundTrip(t *testing.T) {
	t.Parallel()
	for _, index := range []int{0, 1, 9, 10, 524287, math.MaxInt32} {
		want := chunk.NewObjectID()
		object, got, err := parsePath(blockPath(want, index))
		require.NoError(t, err)
		require.Equal(t, want, object)
		require.Equal(t, index, got)
	}
}

func TestPathRefused(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("0f", 16)
	good := "/p2pfs/v1/objects/" + id + "/blocks/7"
	_, _, err := parsePath(good)
	require.NoError(t, err)
	for _, p := range []string{
		"", "/", "*", "/p2pfs", "/p2pfs/", "/metrics",
		good + "/", good + "x", good + "?", " " + good, "/" + good, good[1:], "http://x" + good,
		"/p2pfs/v1/objects/" + id, "/p2pfs/v1/objects/" + id + "/blocks", "/p2pfs/v1/objects/" + id + "/blocks/",
		"/p2pfs/v1/objects//blocks/7", "/p2pfs/v1/objects/" + id[1:] + "/blocks/7",
		"/p2pfs/v1/objects/" + id + "00/blocks/7", "/p2pfs/v1/objects/" + strings.ToUpper(id) + "/blocks/7",
		"/p2pfs/v1/objects/" + id[2:] + "zz/blocks/7", "/p2pfs/v1/objects/../" + id + "/blocks/7",
		"/p2pfs/v1/objects/" + id + "/blocks/-1", "/p2pfs/v1/objects/" + id + "/blocks/+1",
		"/p2pfs/v1/objects/" + id + "/blocks/07", "/p2pfs/v1/objects/" + id + "/blocks/0x7",
		"/p2pfs/v1/objects/" + id + "/blocks/7_0", "/p2pfs/v1/objects/" + id + "/blocks/1e3",
		"/p2pfs/v1/objects/" + id + "/blocks/2147483648", "/p2pfs/v1/objects/" + id + "/blocks/9223372036854775808",
		"/p2pfs/v1/objects/" + id + "/blocks/18446744073709551616", "/p2pfs/v1/objects/" + id + "/blocks/7/blocks/7",
		"/p2pfs/v1/objects/" + id + "%2fblocks/7", "/p2pfs/v1/objects/" + id + "/blocks/%37",
	} {
		_, _, err := parsePath(p)
		require.ErrorIs(t, err, errPath, "%q", p)
	}
	for _, p := range []string{"/p2pfs/v2/objects/" + id + "/blocks/7", "/p2pfs/v10/x", "/p2pfs/v"} {
		_, _, err := parsePath(p)
		require.ErrorIs(t, err, errVersion, "%q", p)
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("/p2pfs/v1/objects/000102030405060708090a0b0c0d0e0f/blocks/0")
	f.Add("/p2pfs/v1/objects/000102030405060708090a0b0c0d0e0f/blocks/2147483648")
	f.Add("/p2pfs/v2/")
	f.Add("/p2pfs/v1/objects//blocks//blocks/")
	f.Fuzz(func(t *testing.T, p string) {
		object, index, err := parsePath(p)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, index, 0)
		require.Equal(t, p, blockPath(object, index), "two paths for one block")
		u, err := url.ParseRequestURI(p)
		require.NoError(t, err)
		require.Equal(t, p, u.EscapedPath())
	})
}
