package cache

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// statfsEvery is how long one look at a file system's free room is believed;
// what we write meanwhile is taken off it.
const statfsEvery = 250 * time.Millisecond

// root is one directory of the cache, locked by this process.
type root struct {
	dir     string
	lock    *os.File
	id      rootFile
	reserve Reserve
	now     func() time.Time
	log     *slog.Logger
	// prealloc: the file system allocates a range cheaper than the pages
	// written into it would be one by one.
	prealloc bool

	used    atomic.Int64 // bytes of object files and staged ones
	journal *journal     // set by adopt

	mu      sync.Mutex
	free    int64 // above the reserve, at asked, less what was promised since
	asked   time.Time
	failing error // of the disk; nil: none since it last worked
	retry   time.Time
}

// openRoot makes, locks and reads one directory. Its identity may be zero.
func openRoot(dir string, cfg Config) (*root, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache root %s: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("make cache root: %w", err)
	}
	r := &root{dir: abs, reserve: cfg.FreeSpace, now: cfg.Now, log: cfg.Log}
	if r.lock, err = lockDir(abs); err != nil {
		return nil, err
	}
	if r.id, _, err = readRoot(abs); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// adopt gives the root its identity, on disk too, and makes its directories.
func (r *root) adopt(id rootFile) error {
	id.layout = layoutVersion
	if r.id != id {
		if err := writeRoot(r.dir, id); err != nil {
			return err
		}
		r.id = id
	}
	for i := range 256 {
		err := os.MkdirAll(filepath.Join(r.dir, "objects", hex.EncodeToString([]byte{byte(i)})), 0o700)
		if err != nil {
			return fmt.Errorf("make cache root: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(r.dir, stagingDir), 0o700); err != nil {
		return fmt.Errorf("make cache root: %w", err)
	}
	var err error
	if r.journal, err = openJournal(r.dir, r.lock); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		return fmt.Errorf("examine the file system of cache root %s: %w", r.dir, err)
	}
	// Measured: allocating 4 MiB and then writing it costs half of the
	// system time of writing alone on ext4. On tmpfs it zeroes twice.
	r.prealloc = st.Type == unix.EXT4_SUPER_MAGIC || st.Type == unix.XFS_SUPER_MAGIC
	return nil
}

// close lets go of the root. Unlocking says so at once even when a process that
// is just being started has a copy of the descriptor.
func (r *root) close() {
	r.journal.close()
	_ = unix.Flock(int(r.lock.Fd()), unix.LOCK_UN)
	r.lock.Close()
}

// path returns the name of one of an object's files.
func (r *root) path(id chunk.ObjectID, suffix string) string {
	h := id.String()
	return r.dir + "/objects/" + h[:2] + "/" + h + suffix
}

// room takes n bytes off the room above the reserve; false if there are not
// that many.
func (r *root) room(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); r.free < n || now.Sub(r.asked) > statfsEvery || now.Before(r.asked) {
		r.free = r.askFree()
		r.asked = now
	}
	if r.free < n {
		return false
	}
	r.free -= n
	return true
}

// shortOf returns how many bytes must go until n fit above the reserve.
func (r *root) shortOf(n int64) int64 { return max(n-r.askFree(), 0) }

// askFree returns the bytes that may still be written; 0 if nobody knows.
func (r *root) askFree() int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		return 0
	}
	return int64(st.Bavail)*st.Bsize - r.reserve.of(int64(st.Blocks)*st.Bsize)
}

// usable reports whether the disk may be tried: it has not failed, or long
// enough ago.
func (r *root) usable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failing == nil || !r.now().Before(r.retry)
}

// failed remembers that the disk refused us. Said once until it works again.
func (r *root) failed(err error) {
	r.mu.Lock()
	first := r.failing == nil
	r.failing = err
	r.retry = r.now().Add(retryAfter)
	r.mu.Unlock()
	if first {
		r.log.Warn("cache root is failing; reads go on without it", "root", r.dir, "err", err)
	}
}

// worked takes back failed.
func (r *root) worked() {
	r.mu.Lock()
	was := r.failing != nil
	r.failing = nil
	r.mu.Unlock()
	if was {
		r.log.Info("cache root works again", "root", r.dir)
	}
}

// trouble returns what is wrong with the disk, nil if nothing is.
func (r *root) trouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failing
}

// diskFault reports whether an error says that the disk, not the request, is
// at fault. A directory of the root that is gone, or not ours any more, is one.
func diskFault(err error) bool {
	for _, e := range []error{
		unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ENXIO, unix.ENODEV, unix.ESTALE,
		unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.EPERM,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// diskError wraps an error of the disk so that callers go on uncached.
func (r *root) diskError(doing string, id chunk.ObjectID, err error) error {
	switch {
	case diskFault(err):
		r.failed(err)
		return fmt.Errorf("%s of object %s: %w: %w", doing, id.Short(), chunk.ErrNoSpace, err)
	case errors.Is(err, unix.EFBIG): // for this file system; others fit
		return fmt.Errorf("%s of object %s: %w: %w", doing, id.Short(), chunk.ErrNoSpace, err)
	}
	return fmt.Errorf("%s of object %s: %w", doing, id.Short(), err)
}
