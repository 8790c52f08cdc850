package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/running"
)

// scanned is one source file, directory or symlink as the caller sees it.
type scanned struct {
	name   string
	path   string
	kind   meta.Kind
	mode   uint32
	uid    uint32
	gid    uint32
	mtime  int64 // ns
	size   int64
	target string
	id     cache.Identity // files
	zero   chunk.Bitmap   // files with holes: blocks that lie in them
	object chunk.Object   // files that are not empty
}

// scanner reads sources. Its methods run with the caller's rights.
type scanner struct {
	set       chunk.SetID
	chunkSize int64
	// mounts are the p2pfs mounts of this machine, by device: never a source,
	// since what is read there comes from others and may go.
	mounts map[uint64]string
}

// ownMounts returns the mountpoints of p2pfs on this machine, of this node and
// others, by device.
func ownMounts() (map[uint64]string, error) {
	all, err := running.Mounts()
	if err != nil {
		return nil, err
	}
	mounts := make(map[uint64]string, len(all))
	for _, m := range all {
		var major, minor uint32
		if _, err := fmt.Sscanf(m.Device, "%d:%d", &major, &minor); err != nil {
			return nil, fmt.Errorf("device %q of the mount at %s: %w", m.Device, m.Point, err)
		}
		if dev := unix.Mkdev(major, minor); mounts[dev] == "" { // the mount before a bind mount of it
			mounts[dev] = m.Point
		}
	}
	return mounts, nil
}

// dir scans every name in a directory.
func (s scanner) dir(path string) ([]scanned, error) {
	names, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	out := make([]scanned, 0, len(names))
	for _, d := range names {
		one, err := s.one(filepath.Join(path, d.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// one scans one path; a symlink is taken as itself.
func (s scanner) one(path string) (scanned, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return scanned{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if point, ok := s.mounts[st.Dev]; ok {
		return scanned{}, fmt.Errorf("%s is on the p2pfs mount at %s: register the file that its name there was made from", path, point)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return fromStat(path, meta.KindDir, &st), nil
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return scanned{}, err
		}
		out := fromStat(path, meta.KindSymlink, &st)
		out.target, out.size = target, int64(len(target))
		return out, nil
	case unix.S_IFREG:
		return s.file(path)
	}
	return scanned{}, fmt.Errorf("%s is not a regular file, a directory or a symlink", path)
}

func fromStat(path string, kind meta.Kind, st *unix.Stat_t) scanned {
	return scanned{
		name: filepath.Base(path), path: path, kind: kind,
		mode: st.Mode & 0o7777, uid: st.Uid, gid: st.Gid, mtime: st.Mtim.Nano(),
	}
}

// file opens a regular file, which is what shows that the caller may read it,
// and takes the identity that every later read is checked against.
func (s scanner) file(path string) (scanned, error) {
	f, err := s.open(path)
	if err != nil {
		return scanned{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return scanned{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return scanned{}, fmt.Errorf("%s is not a regular file any more", path)
	}
	if err := refuseWriters(f); err != nil {
		return scanned{}, err
	}
	out := fromStat(path, meta.KindFile, &st)
	out.size = st.Size
	if out.id, err = cache.IdentityOf(f); err != nil {
		return scanned{}, fmt.Errorf("identify %s: %w", path, err)
	}
	if out.size == 0 {
		return out, nil
	}
	out.object = chunk.Object{
		ID: chunk.NewObjectID(), Set: s.set, Size: out.size,
		ChunkSize: s.chunkSize, BlockSize: chunk.BlockSizeFor(s.chunkSize, out.size),
	}
	if err := out.object.Validate(); err != nil {
		return scanned{}, fmt.Errorf("%s: %w", path, err)
	}
	if st.Blocks*512 < out.size {
		if out.zero, err = holes(f, out.object); err != nil {
			return scanned{}, fmt.Errorf("find the holes of %s: %w", path, err)
		}
		out.object.Sparse = out.zero.Count() > 0
	}
	return out, nil
}

// open opens a source for reading; the time it was last read at stays where
// our rights allow that.
func (s scanner) open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // O_NOATIME is for the owner alone
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	}
	return f, err
}

// refuseWriters fails if somebody has the file open for writing: a read lease
// is granted on a file without writers only (fcntl(2), F_SETLEASE). Where the
// file system or our rights allow no lease, the identity check must do.
func refuseWriters(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("%s is open for writing; register it when it is closed", f.Name())
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		if err != nil {
			return fmt.Errorf("give back the lease on %s: %w", f.Name(), err)
		}
	}
	return nil
}

// maxExtents bounds the time spent on finding the holes of a badly fragmented
// file; blocks after that many extents are taken as data.
const maxExtents = 1 << 18

// holes returns the blocks that lie wholly in holes of the file.
func holes(f *os.File, o chunk.Object) (chunk.Bitmap, error) {
	zero := chunk.NewBitmap(o.Blocks())
	mark := func(from, to int64) { // whole blocks inside [from, to)
		first := int((from + o.BlockSize - 1) / o.BlockSize)
		end := int(to / o.BlockSize)
		if to >= o.Size {
			end = o.Blocks()
		}
		for i := first; i < end; i++ {
			zero.Set(i)
		}
	}
	at := int64(0)
	for range maxExtents {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no data up to the end
			mark(at, o.Size)
			return zero, nil
		}
		if errors.Is(err, unix.EINVAL) { // the file system knows no holes
			return zero, nil
		}
		if err != nil {
			return zero, err
		}
		mark(at, data)
		if at, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE); err != nil {
			return zero, err
		}
		if at >= o.Size {
			return zero, nil
		}
	}
	return zero, nil
}
