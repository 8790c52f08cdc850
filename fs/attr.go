package fs

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/meta"
)

// pageSize is st_blksize. Larger ones make buffered readers (Python's, for
// one) read far more than the header they want.
const pageSize = 4096

// dirSize is the st_size of directories, as ext4 shows small ones.
const dirSize = 4096

// typeBits returns the S_IFMT part of an entry's mode, 0 for no known kind.
func typeBits(k meta.Kind) uint32 {
	switch k {
	case meta.KindDir:
		return syscall.S_IFDIR
	case meta.KindSymlink:
		return syscall.S_IFLNK
	case meta.KindFile:
		return syscall.S_IFREG
	}
	return 0
}

// fillAttr writes what stat shows of an entry.
func fillAttr(e *meta.Entry, a *fuse.Attr) {
	size := e.Size
	switch e.Kind {
	case meta.KindDir:
		size = dirSize
	case meta.KindSymlink:
		size = int64(len(e.Target))
	}
	a.Ino = uint64(e.Inode)
	a.Size = uint64(size)
	a.Blocks = uint64((size + 511) / 512)
	a.Mode = typeBits(e.Kind) | e.Mode&07777
	// One link also for directories: it tells find(1) that the number of
	// subdirectories is not known.
	a.Nlink = 1
	a.Uid, a.Gid = e.UID, e.GID
	a.Blksize = pageSize
	a.Mtime, a.Mtimensec = splitNs(e.MtimeNs)
	a.Ctime, a.Ctimensec = splitNs(e.CtimeNs)
	a.Atime, a.Atimensec = a.Mtime, a.Mtimensec
}

// splitNs returns seconds and nanoseconds since 1970, also before it.
func splitNs(ns int64) (uint64, uint32) {
	sec, rest := ns/int64(time.Second), ns%int64(time.Second)
	if rest < 0 {
		sec, rest = sec-1, rest+int64(time.Second)
	}
	return uint64(sec), uint32(rest)
}

// joinNs undoes splitNs.
func joinNs(sec uint64, nsec uint32) int64 {
	return int64(sec)*int64(time.Second) + int64(nsec)
}

// sameAttr reports whether stat shows the same of both entries.
func sameAttr(a, b *meta.Entry) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.Size == b.Size &&
		a.MtimeNs == b.MtimeNs && a.CtimeNs == b.CtimeNs
}
