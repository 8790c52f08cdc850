package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dirPrefix = "p2pfs-lab-"
	lockName  = "lock"
	// unborn is how long a directory may take to get its lock.
	unborn = time.Hour
)

// workdir is the directory of a lab. Its lock is held as long as the process
// that made it lives, whatever that ends by.
type workdir struct {
	path string
	lock *os.File
}

func newWorkdir(parent string) (*workdir, error) {
	path, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("make the directory of a lab: %w", err)
	}
	w := &workdir{path: path}
	// The lock gets its name when it is held: who finds it free may remove all.
	lock, err := os.OpenFile(filepath.Join(path, lockName+".new"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		w.lock = lock
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(lock.Name(), filepath.Join(path, lockName))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the directory of a lab: %w", err), w.remove())
	}
	return w, nil
}

func (w *workdir) remove() error {
	err := os.RemoveAll(w.path)
	if w.lock != nil {
		w.lock.Close()
		w.lock = nil
	}
	return err
}

// sweep removes the directories of labs whose process is gone.
func sweep(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), dirPrefix) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		if abandoned(path) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// abandoned reports whether nobody holds the lock of a lab's directory.
func abandoned(path string) bool {
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		fi, err := os.Lstat(path)
		return err == nil && time.Since(fi.ModTime()) > unborn
	}
	if err != nil {
		return false
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
