package meta

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/meta/metapb"
)

// DirInfo is a directory's own record.
type DirInfo struct {
	Parent  InodeID // 0 for the root
	Mode    uint32  // permission bits, 07777
	UID     uint32
	GID     uint32
	MtimeNs int64
	CtimeNs int64
	Version uint64 // of the record
}

// marshalDir returns the record of a directory; old is as in MarshalEntry.
func marshalDir(d DirInfo, old []byte) ([]byte, error) {
	if d.Mode&^permBits != 0 {
		return nil, fmt.Errorf("write directory: mode %#o has bits beyond %#o", d.Mode, uint32(permBits))
	}
	m := &metapb.Dir{}
	if old != nil {
		if err := proto.Unmarshal(old, m); err != nil {
			return nil, fmt.Errorf("rewrite directory: %w: %w", ErrFormat, err)
		}
	}
	m.Parent, m.Mode, m.Uid, m.Gid = uint64(d.Parent), d.Mode, d.UID, d.GID
	m.MtimeNs, m.CtimeNs = d.MtimeNs, d.CtimeNs
	if m.CtimeNs == m.MtimeNs {
		m.CtimeNs = 0
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write directory: %w", err)
	}
	return b, nil
}

// unmarshalDir reads a directory's own record; dead says that it was removed.
func unmarshalDir(id InodeID, b []byte, version uint64) (d DirInfo, dead bool, err error) {
	var m metapb.Dir
	if err := proto.Unmarshal(b, &m); err != nil {
		return DirInfo{}, false, fmt.Errorf("read directory %016x: %w: %w", uint64(id), ErrFormat, err)
	}
	if m.Mode&^permBits != 0 {
		return DirInfo{}, false, fmt.Errorf("read directory %016x: %w: mode %#o", uint64(id), ErrFormat, m.Mode)
	}
	d = DirInfo{
		Parent: InodeID(m.Parent), Mode: m.Mode, UID: m.Uid, GID: m.Gid,
		MtimeNs: m.MtimeNs, CtimeNs: m.CtimeNs, Version: version,
	}
	if d.CtimeNs == 0 {
		d.CtimeNs = d.MtimeNs
	}
	return d, m.Dead, nil
}
