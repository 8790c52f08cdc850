package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// The kinds of records of names.
const (
	kindEntry     = 1
	kindTombstone = 2
)

var errRecord = errors.New("unreadable record of the journal")

// record is what the journal holds of one name: who wrote it numbers epochs.
type record struct {
	kind    byte
	epoch   uint64 // its number
	version uint64
	at      int64  // of a tombstone: seconds since 1970
	entry   []byte // the store's record of an entry
}

func (r record) encode() []byte {
	b := make([]byte, 0, len(r.entry)+24)
	b = append(b, r.kind)
	b = binary.AppendUvarint(b, r.epoch)
	b = binary.AppendUvarint(b, r.version)
	if r.kind == kindTombstone {
		return binary.AppendVarint(b, r.at)
	}
	return append(b, r.entry...)
}

// decodeRecord reads what encode wrote. The entry is part of b.
func decodeRecord(b []byte) (record, error) {
	if len(b) == 0 {
		return record{}, fmt.Errorf("%w: empty", errRecord)
	}
	r := record{kind: b[0]}
	b = b[1:]
	for _, to := range []*uint64{&r.epoch, &r.version} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return record{}, fmt.Errorf("%w: cut short", errRecord)
		}
		*to, b = v, b[n:]
	}
	switch r.kind {
	case kindEntry:
		r.entry = b
	case kindTombstone:
		v, n := binary.Varint(b)
		if n <= 0 || n != len(b) {
			return record{}, fmt.Errorf("%w: time of a tombstone", errRecord)
		}
		r.at = v
	default:
		return record{}, fmt.Errorf("%w: kind %d", errRecord, r.kind)
	}
	return r, nil
}

// before reports whether r was written before the other.
func (r record) before(o record) bool {
	return r.epoch < o.epoch || r.epoch == o.epoch && r.version < o.version
}

// way is where a directory's name is.
type way struct {
	epoch   uint64
	version uint64
	parent  meta.InodeID
	name    string
	entry   []byte // the store's record of that name
}

func (w way) encode() []byte {
	b := make([]byte, 0, len(w.name)+len(w.entry)+32)
	b = binary.AppendUvarint(b, w.epoch)
	b = binary.AppendUvarint(b, w.version)
	b = binary.BigEndian.AppendUint64(b, uint64(w.parent))
	b = binary.AppendUvarint(b, uint64(len(w.name)))
	b = append(b, w.name...)
	return append(b, w.entry...)
}

// decodeWay reads what encode wrote. The entry is part of b.
func decodeWay(b []byte) (way, error) {
	var w way
	for _, to := range []*uint64{&w.epoch, &w.version} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return way{}, fmt.Errorf("%w: way cut short", errRecord)
		}
		*to, b = v, b[n:]
	}
	if len(b) < 8 {
		return way{}, fmt.Errorf("%w: way cut short", errRecord)
	}
	w.parent = meta.InodeID(binary.BigEndian.Uint64(b))
	b = b[8:]
	v, n := binary.Uvarint(b)
	if n <= 0 || v > uint64(len(b)-n) {
		return way{}, fmt.Errorf("%w: name of a way", errRecord)
	}
	b = b[n:]
	w.name, w.entry = string(b[:v]), b[v:]
	return w, nil
}

// unmarshalEntry reads the store's record of an entry.
func unmarshalEntry(name string, b []byte, version uint64) (meta.Entry, error) {
	return meta.UnmarshalEntry(name, b, version, chunk.DefaultChunkSize)
}

func dirKey(id meta.InodeID) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

func nameKey(dir meta.InodeID, name string) []byte {
	b := make([]byte, 0, 8+len(name))
	b = binary.BigEndian.AppendUint64(b, uint64(dir))
	return append(b, name...)
}

func seconds(t time.Time) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(t.Unix())) }

// unixTime reads what seconds wrote.
func unixTime(b []byte) (at time.Time, ok bool) {
	if len(b) != 8 {
		return time.Time{}, false
	}
	return time.Unix(int64(binary.LittleEndian.Uint64(b)), 0), true
}
