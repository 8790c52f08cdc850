package rdma

import (
	"encoding/hex"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
)

func credentials() Credentials {
	return Credentials{
		Cluster: chunk.NewClusterID(), Secret: []byte(strings.Repeat("s", 32)),
		Self: chunk.NewNodeID(), Incarnation: 3,
	}
}

func TestTokenIsStable(t *testing.T) {
	t.Parallel()
	cluster, err := chunk.ParseClusterID("000102030405060708090a0b0c0d0e0f")
	require.NoError(t, err)
	c := Credentials{Cluster: cluster, Secret: []byte("0123456789abcdef"), Self: chunk.NodeID{1}, Incarnation: 1}
	// Computed apart from this program: printf | openssl dgst -sha256 -hmac.
	require.Equal(t, "9e7f55a0f93ba31f658690572bf889170857d37e9cfddc2aa522aee09f8346c0", c.token(chunk.NodeID{1}, chunk.NodeID{2}, 7))
}

func TestVerify(t *testing.T) {
	t.Parallel()
	a := credentials()
	b := a
	b.Self, b.Incarnation = chunk.NewNodeID(), 9
	peerB := chunk.Peer{Node: b.Self, Incarnation: b.Incarnation}
	from, err := NewAuth(a)
	require.NoError(t, err)
	cases := []struct {
		name   string
		change func(*Claim)
		want   error
	}{
		{"good", func(*Claim) {}, nil},
		{"nothing", func(c *Claim) { *c = Claim{} }, chunk.ErrRefused},
		{"no token", func(c *Claim) { c.Token = "" }, chunk.ErrRefused},
		{"token cut", func(c *Claim) { c.Token = c.Token[:63] }, chunk.ErrRefused},
		{"token in capitals", func(c *Claim) { c.Token = strings.ToUpper(c.Token) }, chunk.ErrRefused},
		{"another's token", func(c *Claim) { c.From = chunk.NewNodeID().String() }, chunk.ErrRefused},
		{"malformed sender", func(c *Claim) { c.From = "node1" }, chunk.ErrRefused},
		{"sender too long", func(c *Claim) { c.From += "00" }, chunk.ErrRefused},
		{"protocol 2", func(c *Claim) { c.Proto = "2" }, chunk.ErrRefused},
		{"cluster", func(c *Claim) { c.Cluster = chunk.NewClusterID().String() }, chunk.ErrWrongNode},
		{"node", func(c *Claim) { c.Node = c.From }, chunk.ErrWrongNode},
		{"incarnation", func(c *Claim) { c.Incarnation = "8" }, chunk.ErrWrongNode},
		{"incarnation spelt otherwise", func(c *Claim) { c.Incarnation = "09" }, chunk.ErrWrongNode},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			to, err := NewAuth(b)
			require.NoError(t, err)
			for range 2 { // the second time from the caches
				c := from.Claim(peerB)
				k.change(&c)
				id, err := to.Verify(Request{Claim: c})
				require.ErrorIs(t, err, k.want)
				if k.want == nil {
					require.Equal(t, a.Self, id)
				} else {
					require.Zero(t, id)
					require.Empty(t, to.tokens, "a stranger was remembered")
				}
			}
		})
	}
}

func TestClaimFollowsIncarnation(t *testing.T) {
	t.Parallel()
	a, err := NewAuth(credentials())
	require.NoError(t, err)
	p := chunk.Peer{Node: chunk.NewNodeID(), Incarnation: 1}
	first := a.Claim(p)
	require.Equal(t, first, a.Claim(p))
	p.Incarnation = 2
	second := a.Claim(p)
	require.Equal(t, "2", second.Incarnation)
	require.NotEqual(t, first.Token, second.Token)
	require.Len(t, a.claims, 1)
}

func TestCachesAreBounded(t *testing.T) {
	t.Parallel()
	a, err := NewAuth(credentials())
	require.NoError(t, err)
	for range maxCached + 10 {
		a.Claim(chunk.Peer{Node: chunk.NewNodeID(), Incarnation: 1})
	}
	require.LessOrEqual(t, len(a.claims), maxCached)
}

func TestAuthConcurrent(t *testing.T) {
	t.Parallel()
	c := credentials()
	a, err := NewAuth(c)
	require.NoError(t, err)
	self := chunk.Peer{Node: c.Self, Incarnation: c.Incarnation}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				_, _ = a.Verify(Request{Claim: a.Claim(self)})
				a.Claim(chunk.Peer{Node: chunk.NewNodeID()})
			}
		})
	}
	wg.Wait()
}

func TestClaimRoundTrip(t *testing.T) {
	t.Parallel()
	a, err := NewAuth(credentials())
	require.NoError(t, err)
	want := a.Claim(chunk.Peer{Node: chunk.NewNodeID(), Incarnation: 1 << 63})
	kv := want.Pairs()
	got := ParseClaim(func(name string) string {
		for i := 0; i < len(kv); i += 2 {
			require.Equal(t, strings.ToLower(kv[i]), kv[i])
			if kv[i] == name {
				return kv[i+1]
			}
		}
		return ""
	})
	require.Equal(t, want, got)
	_, err = hex.DecodeString(got.Token)
	require.NoError(t, err)
}

func TestCredentialsValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, credentials().Validate())
	for name, change := range map[string]func(*Credentials){
		"a cluster":      func(c *Credentials) { c.Cluster = chunk.ClusterID{} },
		"a node":         func(c *Credentials) { c.Self = chunk.NodeID{} },
		"an incarnation": func(c *Credentials) { c.Incarnation = 0 },
		"secret":         func(c *Credentials) { c.Secret = c.Secret[:MinSecret-1] },
	} {
		c := credentials()
		change(&c)
		_, err := NewAuth(c)
		require.ErrorContains(t, err, name)
	}
}

// FuzzVerify: nothing but the one claim there is for a sender gets in.
func FuzzVerify(f *testing.F) {
	creds := Credentials{
		Cluster: chunk.ClusterID{1}, Secret: []byte("0123456789abcdef"),
		Self: chunk.NodeID{2}, Incarnation: 3,
	}
	a, err := NewAuth(creds)
	require.NoError(f, err)
	good := a.Claim(chunk.Peer{Node: creds.Self, Incarnation: creds.Incarnation})
	f.Add(good.Proto, good.Cluster, good.Node, good.Incarnation, good.From, good.Token)
	f.Add("", "", "", "", "", "")
	f.Add("1", good.Cluster, good.Node, "+3", strings.ToUpper(good.From), good.Token)
	f.Fuzz(func(t *testing.T, proto, cluster, node, incarnation, from, token string) {
		c := Claim{proto, cluster, node, incarnation, from, token}
		id, err := a.Verify(Request{Claim: c})
		if err != nil {
			require.Zero(t, id)
			return
		}
		require.Equal(t, creds.token(id, creds.Self, creds.Incarnation), token)
		c.From = good.From
		c.Token = good.Token
		require.Equal(t, good, c)
	})
}
