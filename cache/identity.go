package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// Identity tells whether a file is still the one that was registered.
type Identity struct {
	Size    int64
	MtimeNs int64
	CtimeNs int64
	Ino     uint64
	Dev     uint64
}

// IdentityOf returns the identity of an open file.
func IdentityOf(f *os.File) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Identity{}, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return identity(&st), nil
}

func identity(st *unix.Stat_t) Identity {
	return Identity{
		Size: st.Size, MtimeNs: st.Mtim.Nano(), CtimeNs: st.Ctim.Nano(),
		Ino: st.Ino, Dev: uint64(st.Dev),
	}
}

// differs says in what a file is no longer the registered one; empty if it may
// still be. A change of ctime or device number alone is no difference: it asks
// for the sums to be verified again.
func (i Identity) differs(now Identity) string {
	switch {
	case now.Size != i.Size:
		return fmt.Sprintf("its size was %d and is %d bytes", i.Size, now.Size)
	case now.Ino != i.Ino:
		return "another file stands in its place"
	case now.MtimeNs != i.MtimeNs:
		return "it was modified"
	}
	return ""
}

// changed is the error for a registered file that no longer is.
func changed(path, what string) error {
	return fmt.Errorf("%w: %s: %s", chunk.ErrSourceChanged, path, what)
}

// openSource opens a registered file for reading. The path must lead to a
// regular file through no symbolic link: it was resolved when it was
// registered, and a link put there since could lead to a file that whoever put
// it may not read. Errors wrap ErrSourceChanged, but for those that say
// nothing about the file.
func openSource(path string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		// Before Linux 5.6, or filtered: the last component is guarded.
		fd, err = unix.Open(path, int(how.Flags), 0)
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, changed(path, "it is gone")
	case errors.Is(err, unix.ELOOP):
		return nil, changed(path, "a symbolic link stands in its path")
	case err != nil:
		return nil, fmt.Errorf("open registered file: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, changed(path, "it is no regular file any more")
	}
	return f, nil
}

// resolver turns paths into ones without symbolic links, remembering the
// directories it has seen: a tree has many files in few of them.
type resolver map[string]string

func (r resolver) resolve(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("register %q: not an absolute path", path)
	}
	dir, base := filepath.Split(filepath.Clean(path))
	real, ok := r[dir]
	if !ok {
		var err error
		if real, err = filepath.EvalSymlinks(dir); err != nil {
			return "", fmt.Errorf("register %s: %w", path, err)
		}
		r[dir] = real
	}
	full := filepath.Join(real, base)
	st, err := os.Lstat(full)
	if err == nil && st.Mode()&os.ModeSymlink != 0 {
		full, err = filepath.EvalSymlinks(full)
	}
	if err != nil {
		return "", fmt.Errorf("register %s: %w", path, err)
	}
	return full, nil
}
