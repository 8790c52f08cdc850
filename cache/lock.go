package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockDir takes the one lock of a root; it is held until the file is closed or
// the process ends. ErrInUse (wrapped) names the process that holds it.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock cache root: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%w: process %s holds %s", ErrInUse, holder(f), dir)
	}
	if err == nil {
		err = recordHolder(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock cache root %s: %w", dir, err)
	}
	return f, nil
}

// holder returns the pid in a lock file, as text for people.
func holder(f *os.File) string {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n]))); err == nil {
		return strconv.Itoa(pid)
	}
	return "(unknown)"
}

// recordHolder writes our pid. The lock is the flock; the pid is for messages,
// so a full disk does not stop us.
func recordHolder(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return nil
}
