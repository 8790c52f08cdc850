package node

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	good := Config{Mountpoint: "/mnt/m", CacheDirs: []string{"/c"}}
	require.NoError(t, good.Validate())
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no mountpoint", func(c *Config) { c.Mountpoint = "" }, "mountpoint"},
		{"no cache", func(c *Config) { c.CacheDirs = nil }, "--cache-dir"},
		{"listen without a port", func(c *Config) { c.Listen = "127.0.0.1" }, "--listen"},
		{"port out of range", func(c *Config) { c.HTTP = "127.0.0.1:70000" }, "--http"},
		{"unknown consistency", func(c *Config) { c.Consistency = "strict" }, "--consistency"},
		{"unknown prefetch", func(c *Config) { c.Prefetch = "on" }, "--prefetch"},
		{"unknown passthrough", func(c *Config) { c.Passthrough = "yes" }, "--passthrough"},
		{"name of two lines", func(c *Config) { c.Name = "a\nb" }, "--name"},
		{"name that is no text", func(c *Config) { c.Name = "\xff" }, "--name"},
		{"endless zone", func(c *Config) { c.Zone = strings.Repeat("z", 300) }, "--zone"},
		{"advertised wildcard", func(c *Config) { c.Advertise = "0.0.0.0:7000" }, "--advertise"},
		{"advertised to all", func(c *Config) { c.Advertise = ":7000" }, "--advertise"},
		{"limit that stops all", func(c *Config) { c.UploadLimit = 1000 }, "--upload-limit"},
		{"limit below nothing", func(c *Config) { c.DownloadLimit = -1 }, "--download-limit"},
		{"chunk size", func(c *Config) { c.ChunkSize = 5000 }, "--chunk-size"},
		{"beyond loopback", func(c *Config) { c.Listen = "0.0.0.0:7000" }, "--insecure"},
		{"store beyond loopback", func(c *Config) { c.MetaListen = "10.0.0.1:2379" }, "--insecure"},
		{"page beyond loopback", func(c *Config) { c.HTTP = ":9000" }, "--insecure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			c.change(&cfg)
			require.ErrorContains(t, cfg.Validate(), c.want)
		})
	}
}

func TestInsecureListensAnywhere(t *testing.T) {
	t.Parallel()
	cfg := Config{Mountpoint: "/mnt/m", CacheDirs: []string{"/c"}, Listen: "0.0.0.0:7000", HTTP: "[::]:9000", Insecure: true}
	require.NoError(t, cfg.Validate())
}

func TestAdvertised(t *testing.T) {
	t.Parallel()
	bound := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7001}
	for _, c := range []struct{ name, listen, advertise, want string }{
		{"as it listens", "10.0.0.1:0", "", "10.0.0.1:7001"},
		{"a name stays a name", "node7:0", "", "node7:7001"},
		{"as told", "10.0.0.1:0", "198.51.100.7:9", "198.51.100.7:9"},
		{"told without a port", "10.0.0.1:0", "node7:0", "node7:7001"},
		{"IPv6", "[fd00::1]:0", "", "[fd00::1]:7001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := advertised(Config{Listen: c.listen, Advertise: c.advertise}, bound)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestBridgesComeLast(t *testing.T) {
	t.Parallel()
	real4, real6 := addressScore("eth0", net.ParseIP("10.1.2.3")), addressScore("eth0", net.ParseIP("2001:db8::1"))
	bridge := addressScore("docker0", net.ParseIP("172.17.0.1"))
	require.Greater(t, real4, real6)
	require.Greater(t, real6, bridge)
}
