package etcd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

func TestAuth(t *testing.T) {
	t.Parallel()
	url := metatest.StartEtcd(t).URL("x")
	cl, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + strings.Split(url, "/")[2]}})
	require.NoError(t, err)
	defer cl.Close()
	_, err = cl.UserAdd(t.Context(), "root", "s3cret:@/")
	require.NoError(t, err)
	_, err = cl.UserGrantRole(t.Context(), "root", "root")
	require.NoError(t, err)
	_, err = cl.AuthEnable(t.Context())
	require.NoError(t, err)

	as := func(user string) string { return strings.Replace(url, "etcd://", "etcd://"+user, 1) }
	s := open(t, as("root:s3cret%3A%40%2F@"), patient)
	_, err = s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	recs, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "1", string(recs[0].Value))
	for _, user := range []string{"", "root:s3cretwrong@", "nobody:s3cret@"} {
		s := open(t, as(user), patient)
		_, err = s.Get(t.Context(), key)
		require.ErrorIs(t, err, meta.ErrDenied, user)
		require.NotContains(t, err.Error(), "s3cret")
		_, err = s.Apply(t.Context(), slot, nil, set("1"))
		require.ErrorIs(t, err, meta.ErrDenied, user)
	}
}
