package meta

import (
	"fmt"
	"strings"

	"github.com/p2pfs/p2pfs/chunk"
)

// InodeID is a random 64-bit identity: of a file, made at create and kept
// through publish, republish and rename, or of a directory. It is st_ino.
type InodeID uint64

// RootDir is the directory at the mountpoint.
const RootDir InodeID = 1

// Kind says what a name stands for.
type Kind uint8

// The kinds of entries.
const (
	KindFile Kind = iota + 1
	KindDir
	KindSymlink
)

// String returns file, dir or symlink.
func (k Kind) String() string {
	switch k {
	case KindFile:
		return "file"
	case KindDir:
		return "dir"
	case KindSymlink:
		return "symlink"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// NameMax is the longest name in a directory, in bytes (NAME_MAX of Linux).
const NameMax = 255

// Entry is a name in a directory, with all that a listing shows. A value;
// its Object is the zero Object for directories, symlinks and empty files.
type Entry struct {
	Name    string // any bytes but NUL and '/'
	Kind    Kind
	Inode   InodeID
	Mode    uint32 // permission bits, 07777
	UID     uint32
	GID     uint32
	MtimeNs int64
	CtimeNs int64
	Size    int64 // bytes
	Object  chunk.Object
	Target  string // of a symlink
	XAttrs  XAttrs
	// ExpiresNs is when a file or symlink ends to be there, ns since 1970 by the
	// clock of whoever looks; a directory goes then if it is empty. 0: never.
	ExpiresNs int64
	Version   uint64 // of the record

	// unknown is what a newer program wrote into the record, so that it is
	// kept wherever the entry is written again.
	unknown string
}

// Place is a name in a directory.
type Place struct {
	Dir  InodeID
	Name string
}

// SameContent reports whether two entries of a name stand for the same bytes
// under the same identity: an open of one may go on as the other.
func (e Entry) SameContent(o Entry) bool {
	return e.Kind == o.Kind && e.Inode == o.Inode && e.Object.ID == o.Object.ID &&
		e.Size == o.Size && e.Target == o.Target
}

// CheckName reports why name cannot be an entry of a directory.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty", ErrName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: %q", ErrName, name)
	case len(name) > NameMax:
		return fmt.Errorf("%w: %q is %d bytes long, the most is %d", ErrName, name[:16]+"...", len(name), NameMax)
	case strings.IndexByte(name, '/') >= 0 || strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: %q holds a slash or a NUL", ErrName, name)
	}
	return nil
}
