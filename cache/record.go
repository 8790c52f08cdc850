package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/p2pfs/p2pfs/chunk"
)

// record is what inplace.db holds of one registered file.
type record struct {
	obj     chunk.Object
	path    string
	id      Identity
	zero    chunk.Bitmap // length 0: no block is known to be zero
	damaged string
	note    string // the caller's
}

// recordVersion is the first byte of every record. Records of version 1 have no
// note; a reader refuses all others.
const (
	recordVersion     = 2
	recordWithoutNote = 1
	recordParts       = 4
)

var errRecord = errors.New("unreadable record of a registered file")

// encode appends the record's bytes: version, fields, and a checksum, which
// the database does not have.
func (r record) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, 128+len(r.path)+len(r.zero.Bytes()))
	b = append(b, recordVersion)
	b = append(b, r.obj.ID[:]...)
	b = append(b, r.obj.Set[:]...)
	for _, n := range []uint64{
		uint64(r.obj.Size), uint64(r.obj.ChunkSize), uint64(r.obj.BlockSize),
		uint64(r.id.Size), uint64(r.id.MtimeNs), uint64(r.id.CtimeNs), r.id.Ino, r.id.Dev,
	} {
		b = le.AppendUint64(b, n)
	}
	b = append(b, boolByte(r.obj.Sparse))
	for _, s := range [recordParts][]byte{[]byte(r.path), r.zero.Bytes(), []byte(r.damaged), []byte(r.note)} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return le.AppendUint32(b, chunk.Sum(b))
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// recordHead is the length of the part of fixed size.
const recordHead = 1 + 16 + 16 + 8*8 + 1

// decodeRecord reads what encode wrote.
func decodeRecord(b []byte) (record, error) {
	if len(b) < recordHead+crc32.Size {
		return record{}, fmt.Errorf("%w: %d bytes", errRecord, len(b))
	}
	le := binary.LittleEndian
	body := b[:len(b)-crc32.Size]
	if le.Uint32(b[len(body):]) != chunk.Sum(body) {
		return record{}, fmt.Errorf("%w: checksum", errRecord)
	}
	parts := recordParts
	switch body[0] {
	case recordVersion:
	case recordWithoutNote:
		parts--
	default:
		return record{}, fmt.Errorf("%w: version %d", errRecord, body[0])
	}
	var r record
	copy(r.obj.ID[:], body[1:])
	copy(r.obj.Set[:], body[17:])
	var n [8]uint64
	for i := range n {
		n[i] = le.Uint64(body[33+8*i:])
	}
	r.obj.Size, r.obj.ChunkSize, r.obj.BlockSize = int64(n[0]), int64(n[1]), int64(n[2])
	r.id = Identity{Size: int64(n[3]), MtimeNs: int64(n[4]), CtimeNs: int64(n[5]), Ino: n[6], Dev: n[7]}
	r.obj.Sparse = body[recordHead-1] == 1
	if err := r.obj.Validate(); err != nil {
		return record{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	return r, r.decodeTail(body[recordHead:], parts)
}

func (r *record) decodeTail(b []byte, n int) error {
	var parts [recordParts][]byte
	for i := range parts[:n] {
		size, k := binary.Uvarint(b)
		if k <= 0 || size > uint64(len(b)-k) {
			return fmt.Errorf("%w: cut short", errRecord)
		}
		parts[i] = b[k : k+int(size)]
		b = b[k+int(size):]
	}
	if len(b) != 0 {
		return fmt.Errorf("%w: %d bytes too many", errRecord, len(b))
	}
	r.path, r.damaged, r.note = string(parts[0]), string(parts[2]), string(parts[3])
	if len(parts[1]) > 0 {
		zero, err := chunk.BitmapFrom(append([]byte(nil), parts[1]...), r.obj.Blocks())
		if err != nil {
			return fmt.Errorf("%w: %w", errRecord, err)
		}
		r.zero = zero
	}
	return nil
}
