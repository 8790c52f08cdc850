package meta

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta/metapb"
)

// SumKind says what checksums an object has.
type SumKind uint8

// The kinds of checksums.
const (
	SumCRC32C  SumKind = iota + 1
	SumNone            // not checked: memory that others write
	SumForeign         // checked by another system
)

// Reference is one name that may stand for an object.
type Reference struct {
	Dir  InodeID
	Name string
	// Version tells this writing of the reference from another one; 0 in
	// what the publisher wrote.
	Version uint64
}

// ObjectRecord is all that the store holds of an object of more than one
// block, but for its groups of checksums.
type ObjectRecord struct {
	Object     chunk.Object
	SumKind    SumKind // 0 is written as SumCRC32C
	References []Reference
	Zone       string
	Damaged    string // why the object cannot be trusted; empty: it can
	Keepers    []chunk.NodeID
	// Zeros are the blocks whose every byte is zero; length 0 if none are
	// known. Written with the record, read by Catalog.Zeros.
	Zeros chunk.Bitmap
	// Sums are the checksums of all blocks, bound with the record; length 0
	// if they are to be bound later. Written with the record, read by
	// Catalog.SumGroup.
	Sums    []uint32
	Version uint64 // of the record
}

// marshalObject returns the record of an object; old is as in MarshalEntry.
func marshalObject(r ObjectRecord, old []byte) ([]byte, error) {
	o := r.Object
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("write object: %w", err)
	}
	m := &metapb.Object{}
	if old != nil {
		if err := proto.Unmarshal(old, m); err != nil {
			return nil, fmt.Errorf("rewrite object %s: %w: %w", o.ID.Short(), ErrFormat, err)
		}
	}
	m.Set, m.Size, m.ChunkSize, m.BlockSize = o.Set[:], o.Size, o.ChunkSize, o.BlockSize
	m.SumKind = metapb.SumKind(max(r.SumKind, SumCRC32C))
	m.Zone, m.Damaged = r.Zone, r.Damaged
	m.References, m.Keepers = nil, nil
	for _, ref := range r.References {
		m.References = append(m.References, &metapb.Reference{Dir: uint64(ref.Dir), Name: []byte(ref.Name), Version: ref.Version})
	}
	for _, k := range r.Keepers {
		m.Keepers = append(m.Keepers, k[:])
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write object %s: %w", o.ID.Short(), err)
	}
	return b, nil
}

func unmarshalObject(id chunk.ObjectID, b []byte, version uint64, chunkSize int64) (ObjectRecord, error) {
	r, err := decodeObject(id, b, chunkSize)
	if err != nil {
		return ObjectRecord{}, fmt.Errorf("read object %s: %w: %w", id.Short(), ErrFormat, err)
	}
	r.Version = version
	return r, nil
}

func decodeObject(id chunk.ObjectID, b []byte, chunkSize int64) (ObjectRecord, error) {
	var m metapb.Object
	if err := proto.Unmarshal(b, &m); err != nil {
		return ObjectRecord{}, err
	}
	set, err := chunk.SetIDFrom(m.Set)
	if err != nil {
		return ObjectRecord{}, err
	}
	r := ObjectRecord{
		Object:  sizedObject(id, set, m.Size, m.ChunkSize, m.BlockSize, false, chunkSize),
		SumKind: SumKind(m.SumKind), Zone: m.Zone, Damaged: m.Damaged,
	}
	if m.SumKind < metapb.SumKind_SUM_KIND_CRC32C || m.SumKind > metapb.SumKind_SUM_KIND_FOREIGN {
		return ObjectRecord{}, fmt.Errorf("unknown kind of checksum %d", m.SumKind)
	}
	for _, ref := range m.References {
		if err := CheckName(string(ref.GetName())); err != nil {
			return ObjectRecord{}, err
		}
		r.References = append(r.References, Reference{Dir: InodeID(ref.Dir), Name: string(ref.Name), Version: ref.Version})
	}
	for _, k := range m.Keepers {
		n, err := chunk.NodeIDFrom(k)
		if err != nil {
			return ObjectRecord{}, err
		}
		r.Keepers = append(r.Keepers, n)
	}
	return r, r.Object.Validate()
}
