package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/p2pfs/p2pfs/chunk"
)

// asideDir is where files of a root lie that cannot be believed and may be all
// there is of what was written here.
const asideDir = "aside"

// clear takes away the files of an object that cannot be believed: what was
// fetched can be fetched again and is removed. What may have been kept is set
// aside: only the map says what is kept, so that this is all that was complete
// and whose map cannot be read. It returns where the bytes are then, or "".
func (c *Cache) clear(r *root, id chunk.ObjectID) (aside string, err error) {
	if !c.mayBeKept(r, id) {
		return "", r.unlink(id)
	}
	dir := filepath.Join(r.dir, asideDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("set files aside: %w", err)
	}
	// The bytes first: a map alone is nobody's at the next start.
	for _, suffix := range []string{".data", ".map"} {
		to := filepath.Join(dir, id.String()+suffix)
		err := rename(r.path(id, suffix), to)
		switch {
		case err == nil && suffix == ".data":
			aside = to
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return aside, fmt.Errorf("set files aside: %w", err)
		}
	}
	return aside, errors.Join(syncDir(dir), syncDir(filepath.Dir(r.path(id, ".map"))))
}

// mayBeKept reports whether the bytes of an object are a complete file that its
// map says is kept, or, if that cannot be read, does not deny it of.
func (c *Cache) mayBeKept(r *root, id chunk.ObjectID) bool {
	st, err := os.Lstat(r.path(id, ".data"))
	if err != nil || !st.Mode().IsRegular() || st.Size() == 0 || st.Mode().Perm() != 0o444 {
		return false
	}
	var first [sectorSize]byte
	f, err := openPlain(r.path(id, ".map"), os.O_RDONLY)
	if err != nil {
		return true
	}
	defer f.Close()
	n, err := readFull(f, first[:])
	if err != nil {
		return true
	}
	h, err := decodeHeader(kindObject, first[:n])
	return err != nil || h.obj.ID != id || h.kept
}

// disbelieve clears and says so.
func (c *Cache) disbelieve(r *root, id chunk.ObjectID, why error) error {
	aside, err := c.clear(r, id)
	switch {
	case err != nil:
		return err
	case aside == "":
		c.log.Warn("object file removed: it cannot be believed", "object", id, "root", r.dir, "err", why)
	default:
		c.log.Error("object file set aside: it may be kept here, and cannot be believed", "object", id, "file", aside, "err", why)
	}
	return nil
}

// countAside returns how many files are set aside.
func (r *root) countAside() int {
	all, _ := filepath.Glob(filepath.Join(r.dir, asideDir, "*.data"))
	return len(all)
}
