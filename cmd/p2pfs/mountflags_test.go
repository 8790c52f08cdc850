package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/node"
)

// settings parses a command line of mount.
func settings(env map[string]string, args ...string) (*mountSettings, error) {
	s := &mountSettings{}
	f := pflag.NewFlagSet("mount", pflag.ContinueOnError)
	s.addFlags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	if err := s.fromEnvironment(f, lookup); err != nil {
		return nil, err
	}
	return s, s.complete(f.Args())
}

func TestMountSettings(t *testing.T) {
	t.Parallel()
	s, err := settings(nil, "etcd://h:1/p", "/mnt/models", "--cache-dir", "/c1", "--cache-dir", "/c2", "--cache-size", "10G",
		"--free-space", "7%", "--listen", "10.0.0.1:7070", "--advertise", "h:1", "--http", "127.0.0.1:0", "--name", "n", "--zone", "z",
		"--read-only", "--chunk-size", "8MiB", "--consistency", "watch", "--prefetch", "off", "--passthrough", "off", "--insecure",
		"--private-glob", "*.part", "--private-glob", "", "--meta-timeout", "2s", "--upload-limit", "1M", "--download-limit", "2MB", "--key-ttl", "7d",
		"--protocol", "rdma", "--rdma-device", "mlx5_0:1", "--rdma-device", "mlx5_1", "--rdma-memory", "2GiB", "--rails", "4", "--rail-strategy", "random", "--gid-index", "3",
		"-d", "--log-format", "json", "--log-level", "debug", "--meta-dir", "/m", "--meta-listen", "127.0.0.1:1")
	require.NoError(t, err)
	index := 3
	want := node.Config{
		MetaURL: "etcd://h:1/p", Mountpoint: "/mnt/models", CacheDirs: []string{"/c1", "/c2"}, CacheSize: 10 << 30,
		Listen: "10.0.0.1:7070", Advertise: "h:1", HTTP: "127.0.0.1:0", Name: "n", Zone: "z", ReadOnly: true, ChunkSize: 8 << 20,
		Consistency: "watch", Prefetch: "off", Passthrough: "off", Insecure: true, MetaDir: "/m", MetaListen: "127.0.0.1:1",
	}
	want.FreeSpace.Fraction = 0.07
	want.Protocol = node.ProtocolRDMA
	want.RDMA = node.RDMAConfig{Devices: []string{"mlx5_0:1", "mlx5_1"}, Memory: 2 << 30, Rails: 4, Strategy: "random", GIDIndex: &index}
	want.UploadLimit, want.DownloadLimit = 1<<20, 2_000_000
	want.KeyTTL = 7 * 24 * time.Hour
	want.ProviderTTL = node.DefaultProviderTTL
	want.Stream.MaxLen, want.Stream.Batch, want.Stream.Block = node.DefaultStreamMaxLen, node.DefaultStreamBatch, node.DefaultStreamBlock
	want.Private, want.MetaTimeout = []string{"*.part", ""}, 2*time.Second
	require.Equal(t, want, s.config)
	require.True(t, s.daemon)
	require.Equal(t, "/c1/p2pfs.log", s.logFile)
}

func TestMountDefaults(t *testing.T) {
	t.Parallel()
	s, err := settings(nil, "/mnt/models")
	require.NoError(t, err)
	require.Empty(t, s.config.MetaURL)
	require.Len(t, s.config.CacheDirs, 1)
	require.Equal(t, mountKey("/mnt/models"), filepath.Base(s.config.CacheDirs[0]))
	require.NotContains(t, s.config.MetaDir, "cache", "the only copy of the names does not lie in a cache")
	require.Equal(t, node.DefaultListen, s.config.Listen)
	require.False(t, s.config.Insecure)
	require.Nil(t, s.config.Private, "the node's default")
	require.Equal(t, node.DefaultMetaTimeout, s.config.MetaTimeout)

	s, err = settings(nil, "/mnt/models", "--cache-dir", "/c")
	require.NoError(t, err)
	require.Empty(t, s.config.MetaDir, "the node's default: in the cache directory that was given")
}

func TestRDMASettings(t *testing.T) {
	t.Parallel()
	s, err := settings(nil, "/mnt/models")
	require.NoError(t, err)
	require.Equal(t, node.ProtocolAuto, s.config.Protocol)
	require.Equal(t, node.RDMAConfig{Strategy: node.DefaultRailStrategy}, s.config.RDMA)
	s, err = settings(map[string]string{"MC_GID_INDEX": "5", "P2PFS_RDMA_DEVICE": "mlx5_0:1,mlx5_1", "P2PFS_RAILS": "2"}, "/mnt/models")
	require.NoError(t, err)
	require.Equal(t, 5, *s.config.RDMA.GIDIndex)
	require.Equal(t, []string{"mlx5_0:1", "mlx5_1"}, s.config.RDMA.Devices)
	require.Equal(t, 2, s.config.RDMA.Rails)
	s, err = settings(map[string]string{"MC_GID_INDEX": "5"}, "/mnt/models", "--gid-index", "3")
	require.NoError(t, err)
	require.Equal(t, 3, *s.config.RDMA.GIDIndex)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--protocol", "ib"}, "want auto, rdma or tcp"},
		{[]string{"--rdma-memory", "1MiB"}, "--rdma-memory"},
		{[]string{"--rails", "65"}, "want 1 to 64"},
		{[]string{"--rail-strategy", "best"}, "--rail-strategy"},
		{[]string{"--gid-index", "-2"}, "--gid-index"},
	} {
		_, err := settings(nil, append([]string{"/mnt/models"}, c.args...)...)
		require.ErrorContains(t, err, c.says)
	}
}

func TestMountKey(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^mnt-models-[0-9a-f]{8}$`, mountKey("/mnt/models"))
	require.NotEqual(t, mountKey("/mnt/a-b"), mountKey("/mnt/a/b"))
	require.Regexp(t, `^[A-Za-z0-9._-]{1,50}$`, mountKey("/mnt/\xff\n "+string(make([]byte, 300))))
}

func TestMountEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"P2PFS_CACHE_DIR": "/e1:/e2", "P2PFS_CACHE_SIZE": "1G", "P2PFS_NAME": "env", "P2PFS_READ_ONLY": "true",
		"P2PFS_META_URL": "etcd://secret@h:1", "P2PFS_NODE": "/ignored", "P2PFS_DAEMON": "true", "P2PFS_ZONE": "",
	}
	s, err := settings(env, "/mnt/x", "--name", "flag")
	require.NoError(t, err)
	require.Equal(t, []string{"/e1", "/e2"}, s.config.CacheDirs)
	require.EqualValues(t, 1<<30, s.config.CacheSize)
	require.Equal(t, "flag", s.config.Name, "the flag wins")
	require.True(t, s.config.ReadOnly)
	require.Equal(t, "etcd://secret@h:1", s.config.MetaURL)
	require.False(t, s.daemon)

	s, err = settings(env, "etcd://arg:1", "/mnt/x", "--cache-dir", "/flag")
	require.NoError(t, err)
	require.Equal(t, "etcd://arg:1", s.config.MetaURL)
	require.Equal(t, []string{"/flag"}, s.config.CacheDirs)

	_, err = settings(map[string]string{"P2PFS_CACHE_SIZE": "plenty"}, "/mnt/x")
	require.ErrorContains(t, err, "P2PFS_CACHE_SIZE")
	require.Equal(t, exitUsage, exitCode(err))
}

func TestMountRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		says []string
	}{
		{"a path as URL", []string{"/a", "/b"}, []string{"META_URL", "/a"}},
		{"a word as URL", []string{"localhost", "/b"}, []string{"META_URL", "localhost"}},
		{"only a URL", []string{"etcd://h:1"}, []string{"MOUNTPOINT is missing"}},
		{"listen without port", []string{"/m", "--listen", "10.0.0.1"}, []string{"--listen", "10.0.0.1"}},
		{"listen with a bad port", []string{"/m", "--listen", "127.0.0.1:http"}, []string{"--listen"}},
		{"advertise", []string{"/m", "--advertise", "h"}, []string{"--advertise"}},
		{"http", []string{"/m", "--http", "80"}, []string{"--http"}},
		{"beyond loopback", []string{"/m", "--listen", "0.0.0.0:1"}, []string{"--listen", "--insecure"}},
		{"any address", []string{"/m", "--listen", ":1"}, []string{"--listen", "--insecure"}},
		{"store beyond loopback", []string{"/m", "--meta-listen", "[::]:1"}, []string{"--meta-listen", "--insecure"}},
		{"consistency", []string{"/m", "--consistency", "sometimes"}, []string{"--consistency", "sometimes", "open", "watch"}},
		{"prefetch", []string{"/m", "--prefetch", "all"}, []string{"--prefetch", "all"}},
		{"passthrough", []string{"/m", "--passthrough", "maybe"}, []string{"--passthrough", "maybe"}},
		{"log format", []string{"/m", "--log-format", "xml"}, []string{"--log-format", "xml", "json"}},
		{"log level", []string{"/m", "--log-level", "loud"}, []string{"--log-level", "loud", "debug"}},
		{"chunk size", []string{"/m", "--chunk-size", "1000"}, []string{"--chunk-size", "1000"}},
		{"no chunk size", []string{"/m", "--chunk-size", "0"}, []string{"--chunk-size"}},
		{"cache size", []string{"/m", "--cache-size", "plenty"}, []string{"--cache-size", "plenty"}},
		{"no cache size", []string{"/m", "--cache-size", "0"}, []string{"--cache-size"}},
		{"free space", []string{"/m", "--free-space", "120%"}, []string{"--free-space", "120%"}},
		{"private glob", []string{"/m", "--private-glob", "[a"}, []string{"--private-glob", "[a"}},
		{"meta timeout", []string{"/m", "--meta-timeout", "1ms"}, []string{"--meta-timeout", "1ms"}},
		{"empty cache", []string{"/m", "--cache-dir", ""}, []string{"--cache-dir"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := settings(nil, c.args...)
			require.Error(t, err)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

func TestMountpointIsResolved(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	t.Chdir(dir)
	s, err := settings(nil, "link/", "--cache-dir", "c", "--meta-dir", "m", "--log-file", "l")
	require.NoError(t, err)
	require.Equal(t, dir+"/real", s.config.Mountpoint)
	require.Equal(t, []string{dir + "/c"}, s.config.CacheDirs)
	require.Equal(t, dir+"/m", s.config.MetaDir)
	require.Equal(t, dir+"/l", s.logFile)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for hp, want := range map[string]bool{"0.0.0.0:1": true, "[::]:1": true, ":1": true, "127.0.0.1:1": false, "h:1": false} {
		require.Equal(t, want, isWildcard(hp), hp)
	}
	for url, want := range map[string]bool{
		"etcd://127.0.0.1:1/p": true, "etcd://localhost": true, "etcd://[::1]:1": true, "etcd://10.0.0.1:1": false,
		"etcd://127.0.0.1:1,h2:1": false, "memory://": true, "etcd://u:p@h": false, "": true,
	} {
		require.Equal(t, want, localStore(url), url)
	}
}
