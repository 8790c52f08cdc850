package meta

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/meta/metapb"
)

// Epoch names one history of a store: a store that was lost and made again, or
// restored from a copy, goes on under another one.
type Epoch = [epochLen]byte

// Origin says when a name came to stand for what it does, or was removed: at
// which version of the store, in which of its epochs. It stays as it is when
// the name is brought into a later epoch.
type Origin struct {
	Epoch   Epoch
	Version uint64
}

// rank orders origins within one store; the greater is the later.
type rank struct {
	epoch   int // -1: one that the store has never heard of
	version uint64
}

func (r rank) less(o rank) bool {
	return r.epoch < o.epoch || r.epoch == o.epoch && r.version < o.version
}

// place returns where an epoch stands in the store's history, or -1.
func (s *StoreInfo) place(e Epoch) int {
	if e == s.Epoch {
		return len(s.Epochs)
	}
	for i, old := range s.Epochs {
		if e == old {
			return i
		}
	}
	return -1
}

// first is the epoch of records that name none.
func (s *StoreInfo) first() Epoch {
	if len(s.Epochs) > 0 {
		return s.Epochs[0]
	}
	return s.Epoch
}

func (s *StoreInfo) rank(o Origin) rank { return rank{s.place(o.Epoch), o.Version} }

// goneField begins the fields that hold tombstones. No name holds a slash.
const goneField = "/gone/"

// isGone returns the name that a field is the tombstone of.
func isGone(field string) (name string, ok bool) { return strings.CutPrefix(field, goneField) }

// The numbers of Entry's fields that stamp writes.
const (
	originEpochField   = 17
	originVersionField = 18
)

// stamped returns the record of an entry as one written in an epoch by a
// change that is about to be made: its version is its origin's.
func stamped(entry []byte, e Epoch) []byte {
	b := make([]byte, 0, len(entry)+24)
	return withOrigin(append(b, entry...), Origin{Epoch: e})
}

// withOrigin appends an origin to the record of an entry; of a field that is
// there twice the last counts.
func withOrigin(entry []byte, o Origin) []byte {
	entry = protowire.AppendTag(entry, originEpochField, protowire.BytesType)
	entry = protowire.AppendBytes(entry, o.Epoch[:])
	entry = protowire.AppendTag(entry, originVersionField, protowire.VarintType)
	return protowire.AppendVarint(entry, o.Version)
}

// originOf reads the origin of an entry's record.
func (s *StoreInfo) originOf(r Record) (Origin, error) {
	var m metapb.Entry
	if err := proto.Unmarshal(r.Value, &m); err != nil {
		return Origin{}, fmt.Errorf("read entry %q: %w: %w", r.Field, ErrFormat, err)
	}
	return s.origin(m.OriginEpoch, m.OriginVersion, r)
}

func (s *StoreInfo) origin(epoch []byte, version uint64, r Record) (Origin, error) {
	o := Origin{Epoch: s.first(), Version: r.Version}
	if version != 0 {
		o.Version = version
	}
	switch len(epoch) {
	case 0:
	case epochLen:
		o.Epoch = Epoch(epoch)
	default:
		return Origin{}, fmt.Errorf("read origin of %q: %w: epoch of %d bytes", r.Field, ErrFormat, len(epoch))
	}
	return o, nil
}

// marshalGone returns a tombstone. Version 0: that of the change it is written
// with.
func marshalGone(o Origin, at time.Time) ([]byte, error) {
	b, err := proto.Marshal(&metapb.Gone{OriginEpoch: o.Epoch[:], OriginVersion: o.Version, AtS: at.Unix()})
	if err != nil {
		return nil, fmt.Errorf("write tombstone: %w", err)
	}
	return b, nil
}

func (s *StoreInfo) unmarshalGone(r Record) (o Origin, at time.Time, err error) {
	var m metapb.Gone
	if err := proto.Unmarshal(r.Value, &m); err != nil {
		return Origin{}, time.Time{}, fmt.Errorf("read tombstone of %q: %w: %w", r.Field, ErrFormat, err)
	}
	o, err = s.origin(m.OriginEpoch, m.OriginVersion, r)
	return o, time.Unix(m.AtS, 0), err
}

// SelfField is the field of a directory's own record in what a Recorder gets.
const SelfField = self

// UnmarshalDir reads a directory's own record as a Recorder gets it; dead says
// that it was removed.
func UnmarshalDir(id InodeID, b []byte) (d DirInfo, dead bool, err error) {
	return unmarshalDir(id, b, 0)
}
