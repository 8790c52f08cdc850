package oracle

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Perform does a step below a directory as a program does: with system calls,
// in the process that calls it.
func Perform(base string, s Step) Result {
	return resultOf(perform(base, s))
}

func resultOf(err error) Result {
	var errno unix.Errno
	var atClose closeError
	switch {
	case err == nil:
		return Done
	case errors.As(err, &atClose):
		return resultOf(atClose.error) + AtClose
	case errors.As(err, &errno):
		return Result(unix.ErrnoName(errno))
	}
	return Result(err.Error())
}

func perform(base string, s Step) error {
	path := filepath.Join(base, s.Path)
	switch s.Do {
	case Mkdir:
		return unix.Mkdir(path, 0o755)
	case Rmdir:
		return unix.Rmdir(path)
	case Unlink:
		return unix.Unlink(path)
	case Rename:
		return move(path, filepath.Join(base, s.To))
	case Symlink:
		return unix.Symlink(s.To, path)
	case Chmod:
		return unix.Chmod(path, s.Mode)
	case Utimens:
		return unix.UtimesNano(path, []unix.Timespec{unix.NsecToTimespec(s.Mtime), unix.NsecToTimespec(s.Mtime)})
	case Publish:
		return write(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, s.Bytes(), 0)
	case Overwrite, Race, Torn:
		return write(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, s.Bytes(), 0)
	case Append:
		return write(path, os.O_WRONLY|os.O_APPEND, s.Bytes(), 0)
	case Patch:
		return write(path, os.O_RDWR, s.Bytes(), s.Off)
	case Truncate:
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return closed(f, f.Truncate(s.Size))
	case Save:
		temp := filepath.Join(filepath.Dir(path), ".save.A1b2C3")
		if err := write(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, s.Bytes(), 0); err != nil {
			return err
		}
		if err := unix.Rename(temp, path); err != nil {
			_ = unix.Unlink(temp)
			return err
		}
		return nil
	}
	return errors.New("no program does " + string(s.Do))
}

// move is rename(2). Between two directories the kernel holds what it needs to take
// in that the directory that is to be moved was moved by another node a moment ago
// (__d_unalias), and says ESTALE: a look at the name takes it in, and one more try is due.
func move(from, to string) error {
	err := unix.Rename(from, to)
	var st unix.Stat_t
	if !errors.Is(err, unix.ESTALE) || filepath.Dir(from) == filepath.Dir(to) || unix.Lstat(from, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	return unix.Rename(from, to)
}

// piece is how much one write(2) brings.
const piece = 10_000

func write(path string, flags int, b []byte, off int64) error {
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return err
	}
	for err == nil && len(b) > 0 {
		part := b[:min(piece, len(b))]
		if flags&os.O_APPEND != 0 {
			_, err = f.Write(part)
		} else {
			_, err = f.WriteAt(part, off)
		}
		b, off = b[len(part):], off+int64(len(part))
	}
	return closed(f, err)
}

// closeError is an error of close(2).
type closeError struct{ error }

func closed(f *os.File, err error) error {
	cerr := f.Close()
	if err == nil && cerr != nil {
		return closeError{cerr}
	}
	return err
}

// Walk returns what is shown of every name below a directory. The bytes of
// the files in whole are read; of those in some one byte of the middle.
func Walk(base string, whole, some map[string]bool) (map[string]Seen, Result) {
	all := map[string]Seen{}
	return all, resultOf(walkDir(base, "", whole, some, all))
}

func walkDir(base, dir string, whole, some map[string]bool, all map[string]Seen) error {
	list, err := os.ReadDir(filepath.Join(base, dir))
	if err != nil {
		return err
	}
	for _, d := range list {
		p := filepath.Join(dir, d.Name())
		all[p] = Look(filepath.Join(base, p), whole[p], some[p])
		if all[p].Kind == Dir {
			err = errors.Join(err, walkDir(base, p, whole, some, all))
		}
	}
	return err
}

// Look returns what is shown of one name.
func Look(path string, whole, some bool) Seen {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Seen{Err: resultOf(err)}
	}
	s := Seen{Mode: st.Mode & 0o7777, Mtime: st.Mtim.Nano(), Nlink: st.Nlink}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		s.Kind = Dir
	case unix.S_IFLNK:
		s.Kind = Link
		target, err := os.Readlink(path)
		s.Target, s.Err = target, resultOf(err)
	case unix.S_IFREG:
		s.Kind, s.Size = File, st.Size
		if whole {
			b, err := os.ReadFile(path)
			if s.Err = resultOf(err); err == nil {
				s.Sum = NewData(b).Sum
			}
		} else if some {
			s.Err = resultOf(readByte(path, st.Size/2))
		}
	}
	return s
}

// Open returns what an open finds under a name, all of its bytes read.
func Open(path string) Seen {
	f, err := os.Open(path)
	if err != nil {
		return Seen{Err: resultOf(err)}
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Seen{Err: resultOf(err)}
	}
	s := Seen{Kind: File, Mode: st.Mode & 0o7777, Mtime: st.Mtim.Nano(), Nlink: st.Nlink, Size: st.Size}
	b, err := io.ReadAll(f)
	if s.Err = resultOf(err); err == nil {
		s.Sum = NewData(b).Sum
	}
	return s
}

func readByte(path string, off int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err = f.ReadAt(b[:], off); err != nil && off > 0 {
		return err
	}
	return nil
}
