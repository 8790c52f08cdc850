package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/metatest"
	"github.com/p2pfs/p2pfs/meta/redis"
)

// certificate writes a certificate for 127.0.0.1 that signs itself, and its
// key.
func certificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}

// TestTLS: with the right authority all works, watches too; with another one,
// without the client's certificate or without TLS nothing is said.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificate(t, dir, "server")
	other, otherKey := certificate(t, dir, "other")
	_, port, err := net.SplitHostPort(metatest.FreeAddr(t))
	require.NoError(t, err)
	metatest.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "yes")
	url := "rediss://127.0.0.1:" + port + "/0/x?"
	for _, good := range []string{url, strings.Replace(url, "rediss", "redis", 1) + "tls=true&"} {
		s := open(t, good+"ca="+cert+"&cert="+cert+"&key="+key, patient)
		v, err := s.Apply(t.Context(), slot, nil, set("1"))
		require.NoError(t, err)
		w := metatest.Watch(t, s, v)
		_, err = s.Apply(t.Context(), slot, nil, set("2"))
		require.NoError(t, err)
		w.Next("2")
		w.End(nil)
	}
	for _, bad := range []string{
		url + "ca=" + other + "&cert=" + cert + "&key=" + key, url + "ca=" + cert, url + "ca=" + cert + "&cert=" + other + "&key=" + otherKey,
		"redis://127.0.0.1:" + port + "/0/x",
	} {
		s := open(t, bad, redis.Options{Patience: 100 * time.Millisecond})
		_, err := s.Get(t.Context(), meta.Key{Slot: slot, Field: "a"})
		require.ErrorIs(t, err, meta.ErrUnavailable, bad)
	}
}

// TestLeastRights: the rights that the README names are enough.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	rights := strings.Fields("on >pw ~p2p:* &p2p:* +@read +@write +@scripting +@pubsub +@connection +time")
	srv := metatest.StartRedis(t, append([]string{"--user", "p2pfs"}, rights...)...)
	s := open(t, strings.Replace(srv.URL("p2p"), "redis://", "redis://p2pfs:pw@", 1), patient)
	w := metatest.Watch(t, s, 0)
	_, err := s.Apply(t.Context(), slot, nil, set("1"))
	require.NoError(t, err)
	w.Next("1")
	recs, err := s.Get(t.Context(), meta.Key{Slot: slot, Field: "a"})
	require.NoError(t, err)
	require.Equal(t, "1", string(recs[0].Value))
	_, err = s.List(t.Context(), slot, "", 10)
	require.NoError(t, err)
	w.End(nil)
}
