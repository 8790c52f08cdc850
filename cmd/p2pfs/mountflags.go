package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/p2pfs/p2pfs/node"
	"github.com/p2pfs/p2pfs/node/running"
)

// envPrefix begins the environment variable of every flag of mount.
const envPrefix = "P2PFS_"

// noEnvironment are the flags that cannot be set by the environment: what one
// invocation does, and variables that mean something else.
var noEnvironment = map[string]bool{"daemon": true, "help": true, "json": true, "node": true}

// ancestors are variables that other stores of this family know for a flag. Ours
// win.
var ancestors = map[string]string{
	"stream": "P2P_STREAM_ENABLED", "stream-key": "P2P_STREAM_KEY", "stream-maxlen": "P2P_STREAM_MAXLEN",
	"stream-batch-size": "P2P_STREAM_BATCH_SIZE", "stream-block-ms": "P2P_STREAM_BLOCK_MS",
	"key-ttl": "P2P_REDIS_KEY_TTL", "gid-index": "MC_GID_INDEX",
}

// anyGID leaves the choice to the node.
const anyGID = -1

// mountSettings is all that mount is told.
type mountSettings struct {
	config node.Config

	cacheSize, chunkSize sizeFlag
	upload, download     sizeFlag
	freeSpace            spaceFlag
	keyTTL               ttlFlag
	rdmaMemory           sizeFlag
	gidIndex             int
	streamBlock          int
	daemon               bool
	logFormat, logLevel  string
	logFile              string
}

func (s *mountSettings) addFlags(f *pflag.FlagSet) {
	c := &s.config
	f.StringArrayVar(&c.CacheDirs, "cache-dir", nil, "keep fetched files in `DIR`; may be given several times (default a directory for this mountpoint in /var/cache/p2pfs, for users in ~/.cache/p2pfs)")
	f.Var(&s.cacheSize, "cache-size", "most the cache may use, over all directories (default: what --free-space leaves)")
	f.Var(&s.freeSpace, "free-space", "keep this much of each cache disk free, as a size or as N% (default 5%, at most 50G)")
	f.StringVar(&c.MetaDir, "meta-dir", "", "keep the metadata store of a node without META_URL in `DIR` (default meta in the first --cache-dir, else a directory for this mountpoint in /var/lib/p2pfs, for users in ~/.local/share/p2pfs)")
	f.StringVar(&c.MetaListen, "meta-listen", node.DefaultMetaListen, "`HOST:PORT` of that metadata store")
	f.DurationVar(&c.MetaTimeout, "meta-timeout", node.DefaultMetaTimeout, "longest wait `TIME` for an answer of the metadata store, as in 5s")
	f.StringVar(&c.MetaAccess.User, "meta-user", "", "`USER` of the metadata store, if META_URL has none; the password is in P2PFS_META_PASSWORD")
	f.StringVar(&c.MetaAccess.CA, "meta-ca", "", "`FILE` with the certificate authorities of a store with TLS")
	f.StringVar(&c.MetaAccess.Cert, "meta-cert", "", "`FILE` with the certificate this node shows to it")
	f.StringVar(&c.MetaAccess.Key, "meta-key", "", "`FILE` with the key of that certificate")
	f.DurationVar(&c.ProviderTTL, "provider-ttl", node.DefaultProviderTTL, "`TIME` after which no other node chooses this one any more if it is killed; it says that it lives three times as often")
	f.Var(&s.keyTTL, "key-ttl", "take names that are published or registered here away again after this `TIME`, as in 30m, 24h or 7d (default 0: never)")
	f.BoolVar(&c.Stream.On, "stream", false, "keep a stream of what happens in a Redis store, for 'p2pfs events --from'; on all nodes or on none")
	f.StringVar(&c.Stream.Key, "stream-key", "", "`KEY` of that stream (default PREFIX:{events})")
	f.IntVar(&c.Stream.MaxLen, "stream-maxlen", node.DefaultStreamMaxLen, "about how many changes it keeps, a `NUMBER`")
	f.IntVar(&c.Stream.Batch, "stream-batch-size", node.DefaultStreamBatch, "changes read from it at once, a `NUMBER`")
	f.IntVar(&s.streamBlock, "stream-block-ms", int(node.DefaultStreamBlock/time.Millisecond), "longest wait of one request for new ones, in `MILLISECONDS`")
	f.StringVar(&c.Listen, "listen", node.DefaultListen, "`HOST:PORT` other nodes reach this one at; port 0 takes a free one")
	f.StringVar(&c.Advertise, "advertise", "", "`HOST:PORT` told to other nodes (default: the --listen address; for 0.0.0.0 or [::] an address of this machine)")
	f.StringVar(&c.HTTP, "http", "", "`HOST:PORT` of the status page and /metrics (default none)")
	f.StringVar(&c.Name, "name", "", "`NAME` of the node, for people (default: the host's name)")
	f.StringVar(&c.Zone, "zone", "", "`ZONE` of the node: nodes of one zone are near each other, and what many of them fetch comes into it about once")
	f.StringVar(&c.Protocol, "protocol", node.ProtocolAuto, "how blocks are moved, `MODE`: auto, by RDMA where both nodes have it, else over TCP; rdma, the same but this node must have it; tcp")
	f.StringArrayVar(&c.RDMA.Devices, "rdma-device", nil, "use this RDMA `DEVICE` or port of one, as in mlx5_0 or mlx5_0:1; may be given several times (default: all that work)")
	f.Var(&s.rdmaMemory, "rdma-memory", "most memory that RDMA registers, at least 64MiB (default 1GiB)")
	f.IntVar(&c.RDMA.Rails, "rails", 0, "RDMA connections to each other node, a `NUMBER` from 1 to 64 (default: one for each pair of ports)")
	f.StringVar(&c.RDMA.Strategy, "rail-strategy", node.DefaultRailStrategy, "how a block finds its connection, `MODE`: random, round-robin or sticky-hash")
	f.IntVar(&s.gidIndex, "gid-index", anyGID, "use the GID with this `INDEX` on every RDMA port (default: MC_GID_INDEX, else the best)")
	f.Var(&s.upload, "upload-limit", "most bytes per second sent to other nodes together, at least 64KiB (default 0: no limit)")
	f.Var(&s.download, "download-limit", "most bytes per second received from other nodes together, at least 64KiB (default 0: no limit)")
	f.BoolVar(&c.RestoreStore, "restore-store", false, "the metadata store is empty because it lost its records: bring back what this node knows")
	f.BoolVar(&c.ReadOnly, "read-only", false, "mount read-only: write and register nothing from here")
	f.BoolVar(&c.XAttr, "xattr", false, "offer extended attributes (user.*); each write(2) then costs one request more")
	f.StringArrayVar(&c.Private, "private-glob", nil, "keep files whose names match `GLOB` on this machine until they are renamed; may be given several times, and an empty one turns it off (default "+strings.Join(node.DefaultPrivate(), ", ")+")")
	f.Var(&s.chunkSize, "chunk-size", "cut what is registered or written here into chunks of this size, a multiple of 4KiB (default: the cluster's, 64MiB)")
	f.StringVar(&c.Consistency, "consistency", node.DefaultConsistency, "`MODE`: open asks the store at every open; watch trusts changes to arrive within 200 ms")
	f.StringVar(&c.Prefetch, "prefetch", node.DefaultPrefetch, "`MODE`: auto fetches ahead of readers; off fetches only what is read")
	f.StringVar(&c.Passthrough, "passthrough", node.DefaultPassthrough, "`MODE`: auto lets the kernel read complete files itself if it can; off never does")
	f.BoolVar(&c.Insecure, "insecure", false, "allow listening beyond this machine without encryption")
	f.BoolVarP(&s.daemon, "daemon", "d", false, "run in the background; return when the mount is ready")
	f.StringVar(&s.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")
	f.StringVar(&s.logLevel, "log-level", "info", "least `LEVEL` logged: debug, info, warn or error")
	f.StringVar(&s.logFile, "log-file", "", "`FILE` that -d logs to (default p2pfs.log in the first cache directory)")
	f.SortFlags = false
}

// fromEnvironment sets the flags that were not given from P2PFS_* variables.
func (s *mountSettings) fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(name)
		if other := ancestors[f.Name]; (!ok || value == "") && other != "" {
			name = other
			value, ok = lookup(name)
		}
		if !ok || value == "" || f.Changed || noEnvironment[f.Name] || failed != nil {
			return
		}
		values := []string{value}
		if f.Value.Type() == "stringArray" {
			values = filepath.SplitList(value)
		}
		if f.Name == "rdma-device" { // which has colons of its own
			values = strings.Split(value, ",")
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				failed = usagef("%s: %w", name, err)
			}
		}
	})
	if v, ok := lookup(envPrefix + "META_URL"); ok {
		s.config.MetaURL = v
	}
	if v, ok := lookup(envPrefix + "META_PASSWORD"); ok {
		s.config.MetaAccess.Password = v
	}
	return failed
}

// complete takes the arguments, fills in the defaults that depend on them, and
// refuses what cannot work.
func (s *mountSettings) complete(args []string) error {
	c := &s.config
	if len(args) == 2 {
		c.MetaURL = args[0]
		if strings.HasPrefix(c.MetaURL, "/") || !strings.Contains(c.MetaURL, "://") {
			return usagef("META_URL %q is not a URL, as in etcd://HOST:PORT", c.MetaURL)
		}
	}
	point := args[len(args)-1]
	if strings.Contains(point, "://") && len(args) == 1 {
		return usagef("%q looks like META_URL; the MOUNTPOINT is missing", point)
	}
	var err error
	if c.Mountpoint, _, _, err = running.Resolve(point); err != nil {
		return fmt.Errorf("mountpoint: %w", err)
	}
	if err := s.completeDirs(); err != nil {
		return err
	}
	c.CacheSize, c.ChunkSize = s.cacheSize.bytes, s.chunkSize.bytes
	c.KeyTTL = s.keyTTL.d
	c.UploadLimit, c.DownloadLimit = s.upload.bytes, s.download.bytes
	c.RDMA.Memory = s.rdmaMemory.bytes
	if s.gidIndex != anyGID {
		c.RDMA.GIDIndex = &s.gidIndex
	}
	switch {
	case s.cacheSize.set && c.CacheSize == 0:
		return usagef("--cache-size 0: the cache needs room; leave the flag out for no limit")
	case s.chunkSize.set && c.ChunkSize == 0:
		return usagef("--chunk-size 0: leave the flag out for the cluster's")
	}
	c.Stream.Block = time.Duration(s.streamBlock) * time.Millisecond
	if c.Stream.MaxLen < 1 || c.Stream.Batch < 1 || s.streamBlock < 1 {
		return usagef("--stream-maxlen, --stream-batch-size and --stream-block-ms: want 1 or more")
	}
	s.freeSpace.apply(c)
	if _, err := s.level(); err != nil {
		return err
	}
	if s.logFormat != "text" && s.logFormat != "json" {
		return usagef("--log-format %q: want text or json", s.logFormat)
	}
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	return nil
}

// completeDirs makes the directories absolute and picks those that were not
// given: the daemon works in another directory than the command.
func (s *mountSettings) completeDirs() (err error) {
	c := &s.config
	key := mountKey(c.Mountpoint)
	if len(c.CacheDirs) == 0 {
		dir, err := defaultDir("/var/cache", "XDG_CACHE_HOME", ".cache", key)
		if err != nil {
			return fmt.Errorf("choose a cache directory (give --cache-dir): %w", err)
		}
		c.CacheDirs = []string{dir}
		if c.MetaDir == "" && c.MetaURL == "" {
			// Names cannot be fetched again: not in a cache.
			if c.MetaDir, err = defaultDir("/var/lib", "XDG_DATA_HOME", ".local/share", key); err != nil {
				return fmt.Errorf("choose a metadata directory (give --meta-dir): %w", err)
			}
		}
	}
	for i, d := range c.CacheDirs {
		if d == "" {
			return usagef("--cache-dir: empty directory")
		}
		if c.CacheDirs[i], err = filepath.Abs(d); err != nil {
			return fmt.Errorf("cache directory %q: %w", d, err)
		}
	}
	for _, p := range []*string{&c.MetaDir, &c.MetaAccess.CA, &c.MetaAccess.Cert, &c.MetaAccess.Key, &s.logFile} {
		if *p == "" {
			continue
		}
		if *p, err = filepath.Abs(*p); err != nil {
			return fmt.Errorf("directory %q: %w", *p, err)
		}
	}
	if s.logFile == "" {
		s.logFile = filepath.Join(c.CacheDirs[0], "p2pfs.log")
	}
	return nil
}

// defaultDir returns the directory of a mountpoint under the system's place
// for root, else under the user's.
func defaultDir(system, variable, home, key string) (string, error) {
	base := system
	if os.Geteuid() != 0 {
		if base = os.Getenv(variable); !filepath.IsAbs(base) {
			h, err := os.UserHomeDir()
			if err != nil {
				return "", err
			}
			base = filepath.Join(h, home)
		}
	}
	return filepath.Join(base, "p2pfs", key), nil
}

// mountKey names a mountpoint's own directories: readable, and unlike that of
// every other mountpoint.
func mountKey(point string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '-'
	}, strings.Trim(point, "/"))
	sum := sha256.Sum256([]byte(point))
	return clean[max(0, len(clean)-40):] + "-" + hex.EncodeToString(sum[:4])
}

// apply sets what is kept free.
func (f *spaceFlag) apply(c *node.Config) {
	if !f.set {
		return
	}
	c.FreeSpace.Bytes, c.FreeSpace.Fraction = f.bytes, f.fraction
	if f.bytes == 0 && f.fraction == 0 {
		c.FreeSpace.Bytes = -1 // nothing, where 0 would mean the default
	}
}
