package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// secret has every character that means something in a URL, or to a shell.
const (
	secret        = `p@:/#%?&w d`
	secretEncoded = `p%40%3A%2F%23%25%3F%26w%20d`
)

// certificateOf writes a certificate for loopback that signs itself, and its key.
func certificateOf(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &private.PublicKey, private)
	require.NoError(t, err)
	b, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), 0o600))
	return cert, key
}

// serverOn starts a server whose arguments hold PORT for a free port of host, and
// waits until it listens.
func serverOn(t *testing.T, c *cluster, host, name string, args ...string) (addr string) {
	t.Helper()
	port := itoa(freePort(t))
	addr = net.JoinHostPort(host, port)
	dir := c.src(name + port)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for i, a := range args {
		switch a {
		case "PORT":
			args[i] = port
		case "DIR":
			args[i] = dir
		case "HTTP":
			args[i] = "http://" + addr
		case "HTTPS":
			args[i] = "https://" + addr
		}
	}
	log, err := os.Create(dir + ".log")
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(p.kill)
	eventually(t, 2*time.Minute, name+" listens", func() bool {
		require.True(t, p.alive(), "%s ended: %s", name, tail(dir+".log", 10))
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return addr
}

// patience are flags of etcdctl that wait for a busy machine.
func patience() []string { return []string{"--command-timeout=2m", "--dial-timeout=1m"} }

func redisOn(t *testing.T, c *cluster, host string, more ...string) string {
	return serverOn(t, c, host, "redis-server", append([]string{"--bind", host, "--dir", "DIR", "--save", "", "--port", "PORT"}, more...)...)
}

// mountWith mounts a node in the background with more variables of the
// environment, uses it, and ends it.
func mountWith(t *testing.T, c *cluster, name, url string, env []string, flags ...string) result {
	t.Helper()
	c.url = url
	n := c.node(name, flags...)
	cmd := exec.Command(world.binary, append(n.args, "-d")...)
	cmd.Env = append(n.env(), env...)
	r := runCmd(t, 3*time.Minute, cmd)
	if r.code == 0 {
		must(t, "sh", "-c", "echo x > "+n.path("f"))
		n.must("umount", n.mnt)
		log := string(content(t, filepath.Join(n.cache, "p2pfs.log")))
		require.NotContains(t, log, secret)
		require.NotContains(t, log, secretEncoded)
	}
	require.NotContains(t, r.String(), secret)
	require.NotContains(t, r.String(), secretEncoded)
	return r
}

// TestStoresByEnvironment: TLS files, user and password from flags and the
// environment, in URLs with odd characters and IPv6, on both kinds of store; what
// is wrong of it is an error that names the store and not its password.
func TestStoresByEnvironment(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	cert, key := certificateOf(t, c.dir)
	tls := []string{"P2PFS_META_CA=" + cert, "P2PFS_META_CERT=" + cert, "P2PFS_META_KEY=" + key}
	login := func(user string) []string {
		return append([]string{"P2PFS_META_USER=" + user, "P2PFS_META_PASSWORD=" + secret}, tls...)
	}

	r6 := redisOn(t, c, "::1", "--requirepass", secret)
	rt := redisOn(t, c, "127.0.0.1", "--port", "0", "--tls-port", "PORT", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--requirepass", secret)
	port, err := anyPort()
	require.NoError(t, err)
	peer := fmt.Sprintf("http://127.0.0.1:%d", port)
	et := serverOn(t, c, "127.0.0.1", "etcd", "--data-dir", "DIR", "--listen-client-urls", "HTTPS", "--advertise-client-urls", "HTTPS",
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--cert-file", cert, "--key-file", key)
	ctl := append(patience(), "--endpoints", "https://"+et, "--cacert", cert)
	must(t, "etcdctl", append(ctl, "user", "add", "root", "--new-user-password", secret)...)
	must(t, "etcdctl", append(ctl, "user", "grant-role", "root", "root")...)
	must(t, "etcdctl", append(ctl, "auth", "enable")...)

	for i, v := range []struct {
		name, url string
		env       []string
		flags     []string
		err       string // empty: it mounts
	}{
		{"IPv6, password in the URL", "redis://:" + secretEncoded + "@" + r6 + "/0/a", nil, nil, ""},
		{"IPv6, password in the environment", "redis://" + r6 + "/0/b", []string{"P2PFS_META_PASSWORD=" + secret}, nil, ""},
		{"Redis, wrong password", "redis://:nottheword@" + r6 + "/0/c", nil, nil, r6},
		{"Redis, no password", "redis://" + r6 + "/0/c", nil, nil, r6},
		{"Redis, no such database", "redis://:" + secretEncoded + "@" + r6 + "/99", nil, nil, r6},
		{"Redis, TLS by the environment", "rediss://" + rt + "/0/d", login(""), nil, ""},
		{"Redis, TLS by flags", "rediss://" + rt + "/0/e", login("")[:2], []string{"--meta-ca", cert, "--meta-cert", cert, "--meta-key", key}, ""},
		{"Redis, TLS and nobody who vouches", "rediss://:" + secretEncoded + "@" + rt + "/0/e", nil, nil, rt},
		{"files without TLS", "redis://" + r6 + "/0/f", login(""), nil, "rediss://"},
		{"etcd, TLS by the environment", "etcds://" + et + "/a", login("root"), nil, ""},
		{"etcd, user in the URL", "etcd://root:" + secretEncoded + "@" + et + "/b?tls=true&ca=" + cert, nil, nil, ""},
		{"etcd, wrong password", "etcds://root:nottheword@" + et + "/c?ca=" + cert, nil, nil, et},
		{"etcd, no such user", "etcds://" + et + "/c", login("nobody"), nil, et},
		{"etcd, password without a user", "etcds://" + et + "/c", login(""), nil, "user"},
	} {
		timeout := "--meta-timeout=3s"
		if v.err == "" {
			timeout = "--meta-timeout=60s"
		}
		r := mountWith(t, c, fmt.Sprintf("n%d", i), v.url, v.env, append(v.flags, timeout)...)
		if v.err == "" {
			require.Zero(t, r.code, "%s: %s", v.name, r)
			continue
		}
		require.Equal(t, 1, r.code, "%s: %s", v.name, r)
		require.Contains(t, r.err, v.err, v.name)
		require.NotContains(t, r.err, "nottheword", v.name)
	}
}

// TestUnreadableStores: a store of a newer format, records that are none, and a
// Cluster that lacks a slot are errors that name the store.
func TestUnreadableStores(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	newer := "\x08\x63\x10\x63\x18\x63" // format, min_reader and min_writer 99
	shared := world.store.url()
	etcd := append(patience(), "--endpoints", shared[len("etcd://"):])
	must(t, "etcdctl", append(etcd, "put", "newer/store/.", newer)...)
	must(t, "etcdctl", append(etcd, "put", "noise/store/.", "no record at all")...)
	r := redisOn(t, c, "127.0.0.1", "--databases", "1")
	cli := func(addr string, args ...string) {
		_, port, _ := net.SplitHostPort(addr)
		must(t, "redis-cli", append([]string{"-p", port}, args...)...)
	}
	cli(r, "hset", "newer:{store}", "", "0000000000000001 0 0 0", ".", "0000000000000001-"+newer)
	cli(r, "hset", "noise:{store}", "", "0000000000000001 0 0 0", ".", "0000000000000001-no record at all")
	cli(r, "hset", "worse:{store}", "", "none", ".", "none")
	cli(r, "set", "string:{store}", "a string")
	holed := redisOn(t, c, "127.0.0.1", "--cluster-enabled", "yes")
	cli(holed, "cluster", "addslotsrange", "0", "5000", "5002", "16383")
	const said, waited = "--meta-timeout=60s", "--meta-timeout=10s" // the store says it, or is asked until then
	for i, v := range []struct{ url, err, timeout string }{
		{shared + "/newer", "needs a newer p2pfs", said},
		{shared + "/noise", "unreadable metadata", said},
		{"redis://" + r + "/0/newer", "needs a newer p2pfs", said},
		{"redis://" + r + "/0/noise", "unreadable metadata", said},
		{"redis://" + r + "/0/worse", "unreadable metadata", said},
		{"redis://" + r + "/0/string", "unreadable metadata", said},
		{"redis+cluster://" + holed, "CLUSTERDOWN", waited},
		{"redis+cluster://" + r, r, waited},
	} {
		res := mountWith(t, c, fmt.Sprintf("u%d", i), v.url, nil, v.timeout)
		require.Equal(t, 1, res.code, "%s: %s", v.url, res)
		require.Contains(t, res.err, v.err, v.url)
		require.Contains(t, res.err, v.url, "the store is named")
	}
}
