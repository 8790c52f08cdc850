package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/storeurl"
	"github.com/p2pfs/p2pfs/node/staging"
	"github.com/p2pfs/p2pfs/rdma/tcp"
)

// Defaults of Config, as the command line states them.
const (
	DefaultListen      = "127.0.0.1:0"
	DefaultMetaListen  = "127.0.0.1:2379"
	DefaultConsistency = "open"
	DefaultPrefetch    = "auto"
	DefaultPassthrough = "auto"
	DefaultMetaTimeout = 5 * time.Second
	MinMetaTimeout     = 100 * time.Millisecond
	DefaultProviderTTL = 10 * time.Second
	MinProviderTTL     = 2 * time.Second
	MinKeyTTL          = time.Second

	DefaultStreamMaxLen = meta.DefaultStreamMaxLen
	DefaultStreamBatch  = meta.DefaultStreamBatch
	DefaultStreamBlock  = meta.DefaultStreamBlock
)

// DefaultPrivate are the patterns of the names that are not published.
func DefaultPrivate() []string { return staging.DefaultPrivate() }

// Config is all that a node is told. Zero values mean the defaults above.
type Config struct {
	MetaURL    string // of the store; empty: an etcd server inside this process
	MetaDir    string // of the embedded server; empty: "meta" in the first cache directory
	MetaListen string // of the embedded server, HOST:PORT
	// MetaAccess is what MetaURL does not say of how to log in to the store.
	MetaAccess storeurl.Access
	// MetaTimeout bounds what an answer of the store is waited for.
	MetaTimeout time.Duration

	// ProviderTTL is how long a node that ends without a word is still chosen to
	// fetch from.
	ProviderTTL time.Duration
	// Stream says whether a Redis store keeps a stream of what happens.
	Stream meta.StreamOptions

	Mountpoint string
	CacheDirs  []string      // at least one
	CacheSize  int64         // bytes the cache may use in all; 0: no limit but FreeSpace
	FreeSpace  cache.Reserve // kept free on each cache file system
	Listen     string        // HOST:PORT other nodes reach this one at
	Advertise  string        // HOST:PORT told to other nodes; empty: where it listens
	HTTP       string        // HOST:PORT for metrics and the status page; empty: none
	Name       string        // shown to people; empty: the host's name
	Zone       string        // nodes of one zone are near each other
	// UploadLimit and DownloadLimit are the most bytes per second of blocks
	// sent to and received from all nodes together; 0: no limit.
	UploadLimit   int64
	DownloadLimit int64
	// Protocol is what blocks are moved by: auto, rdma or tcp.
	Protocol string
	RDMA     RDMAConfig
	ReadOnly bool
	XAttr    bool // offer extended attributes
	// RestoreStore: an empty store is the one of this node's cluster, which
	// lost its records, and what this node knows is to be brought back.
	RestoreStore bool
	// KeyTTL is how long the names live that are published or registered here;
	// 0: for ever.
	KeyTTL        time.Duration
	Private       []string // patterns of the names that are not published; nil: the default, one empty pattern: none
	Insecure      bool     // allow listening beyond loopback without TLS
	ChunkSize     int64    // bytes, for what this node registers; 0: the cluster's
	Consistency   string
	Prefetch      string // auto or off
	Passthrough   string // auto or off
	Version       string // of the program, for status
	RuntimeSocket string // path of the control socket; empty: none is made
	Log           *slog.Logger
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() (Config, error) {
	set := func(v *string, def string) {
		if *v == "" {
			*v = def
		}
	}
	set(&c.Listen, DefaultListen)
	set(&c.Protocol, ProtocolAuto)
	set(&c.MetaListen, DefaultMetaListen)
	set(&c.Consistency, DefaultConsistency)
	set(&c.Prefetch, DefaultPrefetch)
	set(&c.Passthrough, DefaultPassthrough)
	if c.MetaTimeout == 0 {
		c.MetaTimeout = DefaultMetaTimeout
	}
	if c.ProviderTTL == 0 {
		c.ProviderTTL = DefaultProviderTTL
	}
	if c.Private == nil {
		c.Private = staging.DefaultPrivate()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("read the host's name (give --name): %w", err)
		}
		c.Name = host
	}
	for i, d := range c.CacheDirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return c, fmt.Errorf("cache directory %q: %w", d, err)
		}
		c.CacheDirs[i] = abs
	}
	if c.MetaDir == "" && len(c.CacheDirs) > 0 {
		c.MetaDir = filepath.Join(c.CacheDirs[0], "meta")
	}
	return c, nil
}

// Validate reports the first thing that is wrong with c, naming the flag.
func (c Config) Validate() error {
	if c.Mountpoint == "" {
		return errors.New("no mountpoint given")
	}
	if len(c.CacheDirs) == 0 {
		return errors.New("no cache directory given (--cache-dir)")
	}
	if err := checkWord(c.Name); err != nil {
		return fmt.Errorf("--name %q: %w", c.Name, err)
	}
	if err := checkWord(c.Zone); err != nil {
		return fmt.Errorf("--zone %q: %w", c.Zone, err)
	}
	if c.Advertise != "" && isWildcard(c.Advertise) {
		return fmt.Errorf("--advertise %q: other nodes cannot connect to a wildcard; give an address or a name of this host", c.Advertise)
	}
	for flag, hp := range map[string]string{"--listen": c.Listen, "--advertise": c.Advertise, "--http": c.HTTP, "--meta-listen": c.MetaListen} {
		if hp == "" {
			continue
		}
		if err := checkHostPort(hp); err != nil {
			return fmt.Errorf("%s %q: %w", flag, hp, err)
		}
	}
	for _, e := range []struct{ flag, got, one, two string }{
		{"--consistency", c.Consistency, "open", "watch"},
		{"--prefetch", c.Prefetch, "auto", "off"},
		{"--passthrough", c.Passthrough, "auto", "off"},
	} {
		if e.got != "" && e.got != e.one && e.got != e.two {
			return fmt.Errorf("%s %q: want %s or %s", e.flag, e.got, e.one, e.two)
		}
	}
	switch c.Protocol {
	case "", ProtocolAuto, ProtocolRDMA, ProtocolTCP:
	default:
		return fmt.Errorf("--protocol %q: want %s, %s or %s", c.Protocol, ProtocolAuto, ProtocolRDMA, ProtocolTCP)
	}
	if err := c.RDMA.validate(); err != nil {
		return err
	}
	if c.MetaTimeout != 0 && c.MetaTimeout < MinMetaTimeout {
		return fmt.Errorf("--meta-timeout %s: want at least %s", c.MetaTimeout, MinMetaTimeout)
	}
	for flag, limit := range map[string]int64{"--upload-limit": c.UploadLimit, "--download-limit": c.DownloadLimit} {
		if limit != 0 && limit < tcp.LeastLimit {
			return fmt.Errorf("%s: %d bytes per second: want %d at least, or 0 for no limit", flag, limit, tcp.LeastLimit)
		}
	}
	if c.ProviderTTL != 0 && c.ProviderTTL < MinProviderTTL {
		return fmt.Errorf("--provider-ttl %s: want at least %s", c.ProviderTTL, MinProviderTTL)
	}
	if err := CheckKeyTTL(c.KeyTTL); err != nil {
		return fmt.Errorf("--key-ttl %s: %w", c.KeyTTL, err)
	}
	if err := staging.CheckPrivate(c.Private); err != nil {
		return fmt.Errorf("--private-glob: %w", err)
	}
	if c.ChunkSize != 0 {
		if err := CheckChunkSize(c.ChunkSize); err != nil {
			return fmt.Errorf("--chunk-size: %w", err)
		}
	}
	if !c.Insecure {
		for flag, hp := range map[string]string{"--listen": c.Listen, "--meta-listen": c.MetaListen, "--http": c.HTTP} {
			if hp != "" && !isLoopback(hp) {
				return fmt.Errorf("%s %s is beyond loopback: what is said there crosses the network unencrypted; add --insecure if that network is trusted", flag, hp)
			}
		}
	}
	return nil
}

// CheckKeyTTL reports why names cannot live for so long.
func CheckKeyTTL(ttl time.Duration) error {
	if ttl != 0 && ttl < MinKeyTTL {
		return fmt.Errorf("want at least %s, or 0 for ever", MinKeyTTL)
	}
	return nil
}

// checkWord reports why s cannot be shown to people on a line of its own, on
// every node.
func checkWord(s string) error {
	const most = 255
	switch {
	case len(s) > most:
		return fmt.Errorf("%d bytes, of at most %d", len(s), most)
	case !utf8.ValidString(s), strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("want UTF-8 without control characters")
	}
	return nil
}

// CheckChunkSize reports why n bytes cannot be a chunk size.
func CheckChunkSize(n int64) error {
	o := chunk.Object{ID: chunk.ObjectID{1}, ChunkSize: n, BlockSize: chunk.BlockSizeFor(n, 0)}
	if n < chunk.MinBlockSize || o.Validate() != nil {
		return fmt.Errorf("%d bytes: want a multiple of %d", n, chunk.MinBlockSize)
	}
	return nil
}

func checkHostPort(hp string) error {
	_, port, err := net.SplitHostPort(hp)
	if err != nil {
		return errors.New("want HOST:PORT, an IPv6 address in brackets")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}

func isLoopback(hp string) bool {
	host, _, err := net.SplitHostPort(hp)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
