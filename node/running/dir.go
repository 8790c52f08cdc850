package running

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// EnvDir is the environment variable that names the runtime directory.
const EnvDir = "P2PFS_RUNTIME_DIR"

// systemDir is where daemons of root publish themselves.
const systemDir = "/run/p2pfs"

// maxSocketPath is the longest path of a unix socket, in bytes.
const maxSocketPath = 107

// Dir returns the runtime directory of this user: P2PFS_RUNTIME_DIR, else
// /run/p2pfs for root, else $XDG_RUNTIME_DIR/p2pfs, else /tmp/p2pfs-<uid>.
func Dir() string {
	if d := os.Getenv(EnvDir); d != "" {
		return d
	}
	uid := os.Geteuid()
	if uid == 0 {
		return systemDir
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		return filepath.Join(d, "p2pfs")
	}
	return filepath.Join(os.TempDir(), "p2pfs-"+strconv.Itoa(uid))
}

// searchDirs returns where commands of this user look for nodes: their own
// directory first, then that of root.
func searchDirs() []string {
	own := Dir()
	if os.Getenv(EnvDir) != "" || own == systemDir {
		return []string{own}
	}
	return []string{own, systemDir}
}

// makeDir returns the runtime directory as an absolute path, made if it is
// not there. It refuses one that somebody else could have prepared: sockets
// and facts found in it are trusted.
func makeDir() (string, error) {
	dir, err := filepath.Abs(Dir())
	if err != nil {
		return "", fmt.Errorf("runtime directory: %w", err)
	}
	perm := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		// Others may see that a node runs; its socket stays root's alone.
		perm = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make the runtime directory (set %s to another): %w", EnvDir, err)
	}
	if err := os.Mkdir(dir, perm); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make the runtime directory (set %s to another): %w", EnvDir, err)
	}
	return dir, checkTrust(dir)
}

// checkTrust reports why files in a runtime directory cannot be believed. A
// directory that the user named is the user's choice, as long as not everybody
// can write it.
func checkTrust(dir string) error {
	stat := os.Lstat
	named := os.Getenv(EnvDir) != ""
	if named {
		stat = os.Stat
	}
	fi, err := stat(dir)
	if err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	owned := ok && (int(st.Uid) == os.Geteuid() || st.Uid == 0)
	switch {
	case !fi.IsDir():
		return fmt.Errorf("runtime directory %s is not a directory; set %s to another", dir, EnvDir)
	case fi.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("runtime directory %s can be written by everybody (mode %04o); set %s to another", dir, fi.Mode().Perm(), EnvDir)
	case !named && !owned:
		return fmt.Errorf("runtime directory %s belongs to somebody else; set %s to one of your own", dir, EnvDir)
	}
	return nil
}

// SocketPath returns where the control socket of a daemon lies, in the runtime
// directory, which is made if it is not there. key is unique on this machine
// and the same at every start of the daemon: a node id, or CacheKey. Sockets
// do not lie in the cache directory because their paths must be short.
func SocketPath(key string) (string, error) {
	if !validKey(key) {
		return "", fmt.Errorf("control socket key %q: want letters and digits", key)
	}
	dir, err := makeDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, key+".sock")
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("control socket %s: the path is %d bytes long and may be %d; set %s to a shorter directory", path, len(path), maxSocketPath, EnvDir)
	}
	return path, nil
}

// validKey reports whether s can name a file without naming any other.
func validKey(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-')
	}) < 0
}

// CacheKey returns the key of the daemon whose first cache directory is dir.
// The lock on the directory makes it unique on this machine, and it is known
// before the node is.
func CacheKey(dir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(dir)))
	return hex.EncodeToString(sum[:8])
}
