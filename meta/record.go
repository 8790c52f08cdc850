package meta

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta/metapb"
)

// targetMax is the longest target of a symlink, in bytes (PATH_MAX of Linux).
const targetMax = 4095

// permBits are the bits of a mode that a record holds.
const permBits = 0o7777

// kinds maps the kinds of records to ours. The numbers agree; the switch keeps
// an unknown one out.
func kindOf(k metapb.Kind) (Kind, bool) {
	switch k {
	case metapb.Kind_KIND_FILE, metapb.Kind_KIND_DIR, metapb.Kind_KIND_SYMLINK:
		return Kind(k), true
	}
	return 0, false
}

// MarshalEntry returns the record of an entry. old is the record it takes the
// place of: what this program does not know of in it is kept; with nil, what
// the record that e was read from had of it.
func MarshalEntry(e Entry, old []byte) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("write entry %q: %w", e.Name, err)
	}
	m := &metapb.Entry{}
	if old != nil {
		if err := proto.Unmarshal(old, m); err != nil {
			return nil, fmt.Errorf("rewrite entry %q: %w: %w", e.Name, ErrFormat, err)
		}
	} else if e.unknown != "" {
		m.ProtoReflect().SetUnknown([]byte(e.unknown))
	}
	m.Move = nil
	m.Kind = metapb.Kind(e.Kind)
	m.Inode = uint64(e.Inode)
	m.Mode, m.Uid, m.Gid = e.Mode, e.UID, e.GID
	m.MtimeNs, m.CtimeNs = e.MtimeNs, e.CtimeNs
	m.Size = e.Size
	m.Target = []byte(e.Target)
	m.Xattrs = []byte(e.XAttrs)
	m.ExpiresNs = e.ExpiresNs
	m.Object, m.Set, m.ChunkSize, m.BlockSize, m.Sparse = nil, nil, 0, 0, false
	if !e.Object.ID.IsZero() {
		m.Object, m.Set = e.Object.ID[:], e.Object.Set[:]
		m.ChunkSize, m.BlockSize = e.Object.ChunkSize, e.Object.BlockSize
		m.Sparse = e.Object.Sparse
		if m.BlockSize == chunk.DefaultBlockSize {
			m.BlockSize = 0
		}
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write entry %q: %w", e.Name, err)
	}
	return b, nil
}

// UnmarshalEntry reads the record of an entry. chunkSize is the store's
// default, in bytes.
func UnmarshalEntry(name string, b []byte, version uint64, chunkSize int64) (Entry, error) {
	e, _, err := unmarshalMoving(name, b, version, chunkSize)
	return e, err
}

// unmarshalMoving is UnmarshalEntry that also returns where the entry is being
// moved to; nil if it is not.
func unmarshalMoving(name string, b []byte, version uint64, chunkSize int64) (Entry, *move, error) {
	return new(entryReader).moving(name, b, version, chunkSize)
}

// entryReader reads records of entries, one after the other: a listing of many
// makes no message for each. What it returns does not refer to it.
type entryReader struct{ m metapb.Entry }

// moving is unmarshalMoving.
func (r *entryReader) moving(name string, b []byte, version uint64, chunkSize int64) (Entry, *move, error) {
	m := &r.m
	err := proto.Unmarshal(b, m)
	var e Entry
	if err == nil {
		e, err = decodeEntry(name, m, chunkSize)
	}
	var mv *move
	if err == nil && m.Move != nil {
		mv, err = decodeMove(m.Move)
	}
	if err != nil {
		return Entry{}, nil, fmt.Errorf("read entry %q: %w: %w", name, ErrFormat, err)
	}
	e.Version = version
	return e, mv, nil
}

func decodeEntry(name string, m *metapb.Entry, chunkSize int64) (Entry, error) {
	kind, ok := kindOf(m.Kind)
	if !ok {
		return Entry{}, fmt.Errorf("unknown kind %d", m.Kind)
	}
	e := Entry{
		Name: name, Kind: kind, Inode: InodeID(m.Inode),
		Mode: m.Mode, UID: m.Uid, GID: m.Gid,
		MtimeNs: m.MtimeNs, CtimeNs: m.CtimeNs,
		Size: m.Size, Target: string(m.Target), XAttrs: XAttrs(m.Xattrs),
		ExpiresNs: m.ExpiresNs,
		unknown:   string(m.ProtoReflect().GetUnknown()),
	}
	if m.Offset != 0 {
		return Entry{}, fmt.Errorf("bytes at offset %d of an object are not known to this program", m.Offset)
	}
	if len(m.Object) > 0 {
		o, err := decodeEntryObject(m, chunkSize)
		if err != nil {
			return Entry{}, err
		}
		e.Object = o
	}
	return e, e.check()
}

func decodeEntryObject(m *metapb.Entry, chunkSize int64) (chunk.Object, error) {
	id, err := chunk.ObjectIDFrom(m.Object)
	if err != nil {
		return chunk.Object{}, err
	}
	set, err := chunk.SetIDFrom(m.Set)
	if err != nil {
		return chunk.Object{}, err
	}
	return sizedObject(id, set, m.Size, m.ChunkSize, m.BlockSize, m.Sparse, chunkSize), nil
}

// sizedObject fills in the sizes that a record leaves to the default.
func sizedObject(id chunk.ObjectID, set chunk.SetID, size, chunkSize, blockSize int64, sparse bool, dflt int64) chunk.Object {
	if chunkSize == 0 {
		chunkSize = dflt
	}
	if blockSize == 0 {
		blockSize = chunk.DefaultBlockSize
	}
	return chunk.Object{ID: id, Set: set, Size: size, ChunkSize: chunkSize, BlockSize: blockSize, Sparse: sparse}
}

// check reports why e cannot be an entry of a directory.
func (e Entry) check() error {
	if err := CheckName(e.Name); err != nil {
		return err
	}
	if e.Inode == 0 || e.Inode == RootDir {
		return fmt.Errorf("inode %d cannot be an entry's", e.Inode)
	}
	if e.Mode&^permBits != 0 {
		return fmt.Errorf("mode %#o has bits beyond %#o", e.Mode, uint32(permBits))
	}
	if err := e.XAttrs.Check(); err != nil {
		return err
	}
	if e.ExpiresNs < 0 {
		return fmt.Errorf("its time ends %d ns before 1970", -e.ExpiresNs)
	}
	switch e.Kind {
	case KindFile:
		return e.checkFile()
	case KindDir:
		if e.Target != "" || !e.Object.ID.IsZero() {
			return fmt.Errorf("a directory with a target or an object")
		}
	case KindSymlink:
		if e.Target == "" || len(e.Target) > targetMax || !e.Object.ID.IsZero() {
			return fmt.Errorf("a symlink with an object or a target of %d bytes", len(e.Target))
		}
	default:
		return fmt.Errorf("unknown %v", e.Kind)
	}
	return nil
}

func (e Entry) checkFile() error {
	switch {
	case e.Target != "":
		return fmt.Errorf("a file with a target")
	case e.Object.ID.IsZero() && e.Size != 0:
		return fmt.Errorf("a file of %d bytes without an object", e.Size)
	case e.Object.ID.IsZero():
		return nil
	case e.Object.Set.IsZero():
		return fmt.Errorf("object %s without a set", e.Object.ID.Short())
	case e.Object.Size != e.Size:
		return fmt.Errorf("a file of %d bytes in an object of %d", e.Size, e.Object.Size)
	}
	return e.Object.Validate()
}
