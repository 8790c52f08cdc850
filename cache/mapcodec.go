package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// A map file is one header sector and then one sector for each 64 blocks.
// Every sector carries the checksum of itself, of the object and of its place,
// and is written by one write that crosses no page: it is there or it is not.
// Numbers are little-endian. A sector of zeros is a group with no block.
const (
	sectorSize = 512
	crcAt      = sectorSize - 4
	mapVersion = 1
)

// Kinds of map file.
const (
	kindObject = "p2pfsmap" // of a fetched object
	kindSums   = "p2pfssum" // of a registered file
	kindBase   = "p2pfsbas" // of a staged file: which of its base's blocks it has of its own
)

// Header flags.
const (
	flagSealed = 1 << iota // every block was present once; the data file is read-only
	flagSparse             // chunk.Object.Sparse
	flagKept               // never evicted; the layout of the root keeps out programs that do not know
)

// errMap is the reason of every refusal to read a map.
var errMap = errors.New("unusable map")

// header is the first sector of a map file.
type header struct {
	kind   string
	obj    chunk.Object
	sealed bool
	kept   bool
	boot   [16]byte // of the machine when the map was last made sure of
	ident  Identity // kindSums: what the sums were verified under; kindBase: Size is where the base's bytes end
}

// bootBytes turns a boot id into what a header holds.
func bootBytes(id string) (b [16]byte) {
	s := sha256.Sum256([]byte(id))
	copy(b[:], s[:])
	return b
}

// mapSize returns the exact length of an object's map file.
func mapSize(o chunk.Object) int64 {
	return int64(1+(o.Blocks()+groupBlocks-1)/groupBlocks) * sectorSize
}

// encode returns the header's sector.
func (h header) encode() []byte {
	b := make([]byte, sectorSize)
	le := binary.LittleEndian
	copy(b, h.kind)
	le.PutUint32(b[8:], mapVersion)
	var flags uint32
	if h.sealed {
		flags |= flagSealed
	}
	if h.kept {
		flags |= flagKept
	}
	if h.obj.Sparse {
		flags |= flagSparse
	}
	le.PutUint32(b[12:], flags)
	copy(b[16:], h.obj.ID[:])
	copy(b[32:], h.obj.Set[:])
	le.PutUint64(b[48:], uint64(h.obj.Size))
	le.PutUint64(b[56:], uint64(h.obj.ChunkSize))
	le.PutUint64(b[64:], uint64(h.obj.BlockSize))
	copy(b[72:], h.boot[:])
	le.PutUint64(b[88:], uint64(h.ident.Size))
	le.PutUint64(b[96:], uint64(h.ident.MtimeNs))
	le.PutUint64(b[104:], uint64(h.ident.CtimeNs))
	le.PutUint64(b[112:], h.ident.Ino)
	le.PutUint64(b[120:], h.ident.Dev)
	le.PutUint32(b[crcAt:], chunk.Sum(b[:crcAt]))
	return b
}

// decodeHeader reads the first sector of a map file of the kind.
func decodeHeader(kind string, b []byte) (header, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < sectorSize:
		return header{}, fmt.Errorf("%w: %d bytes", errMap, len(b))
	case string(b[:8]) != kind:
		return header{}, fmt.Errorf("%w: not a map", errMap)
	case le.Uint32(b[crcAt:]) != chunk.Sum(b[:crcAt]):
		return header{}, fmt.Errorf("%w: header checksum", errMap)
	case le.Uint32(b[8:]) != mapVersion:
		return header{}, fmt.Errorf("%w: version %d", errMap, le.Uint32(b[8:]))
	}
	flags := le.Uint32(b[12:])
	h := header{kind: kind, sealed: flags&flagSealed != 0, kept: flags&flagKept != 0}
	h.obj = chunk.Object{
		Size:      int64(le.Uint64(b[48:])),
		ChunkSize: int64(le.Uint64(b[56:])),
		BlockSize: int64(le.Uint64(b[64:])),
		Sparse:    flags&flagSparse != 0,
	}
	copy(h.obj.ID[:], b[16:])
	copy(h.obj.Set[:], b[32:])
	copy(h.boot[:], b[72:])
	h.ident = Identity{
		Size:    int64(le.Uint64(b[88:])),
		MtimeNs: int64(le.Uint64(b[96:])),
		CtimeNs: int64(le.Uint64(b[104:])),
		Ino:     le.Uint64(b[112:]),
		Dev:     le.Uint64(b[120:]),
	}
	if err := h.obj.Validate(); err != nil {
		return header{}, fmt.Errorf("%w: %w", errMap, err)
	}
	return h, nil
}

// groupSum is the checksum of a group's sector: it differs from object to
// object and from place to place, so that a stray sector is never believed.
func groupSum(id chunk.ObjectID, index int, b []byte) uint32 {
	var place [8]byte
	binary.LittleEndian.PutUint64(place[:], uint64(index))
	return chunk.AddSum(chunk.AddSum(chunk.Sum(id[:]), place[:]), b[:crcAt])
}

// groupBits is a group about to be written.
type groupBits struct{ have, synced, zero uint64 }

func (g *group) bits() groupBits {
	return groupBits{g.have.Load(), g.synced.Load(), g.zero.Load()}
}

// encodeGroup fills b (one sector) with group i of t, with these bits instead
// of its own.
func (t *table) encodeGroup(b []byte, i int, w groupBits) {
	clear(b)
	le := binary.LittleEndian
	le.PutUint64(b[0:], w.have)
	le.PutUint64(b[8:], w.synced)
	le.PutUint64(b[16:], w.zero)
	g := &t.groups[i]
	for k := range g.sums {
		if w.have&(1<<k) != 0 {
			le.PutUint32(b[24+4*k:], g.sums[k].Load())
		}
	}
	if w == (groupBits{}) {
		return
	}
	le.PutUint32(b[crcAt:], groupSum(t.obj.ID, i, b))
}

// decodeGroup reads one sector into group i.
func (t *table) decodeGroup(i int, b []byte) error {
	if allZero(b) {
		return nil
	}
	le := binary.LittleEndian
	if le.Uint32(b[crcAt:]) != groupSum(t.obj.ID, i, b) {
		return fmt.Errorf("%w: checksum of group %d", errMap, i)
	}
	w := groupBits{le.Uint64(b[0:]), le.Uint64(b[8:]), le.Uint64(b[16:])}
	if w.have&^t.valid(i) != 0 || w.synced&^w.have != 0 || w.zero&^w.have != 0 {
		return fmt.Errorf("%w: bits of group %d", errMap, i)
	}
	g := &t.groups[i]
	g.have.Store(w.have)
	g.synced.Store(w.synced)
	g.zero.Store(w.zero)
	for k := range g.sums {
		g.sums[k].Store(le.Uint32(b[24+4*k:]))
	}
	return nil
}

// decodeMap reads a whole map file. Nothing is allocated by what the header
// claims before the length of the file agrees with it.
func decodeMap(kind string, b []byte, z *zeroSums) (header, *table, error) {
	h, err := decodeHeader(kind, b)
	if err != nil {
		return h, nil, err
	}
	if int64(len(b)) != mapSize(h.obj) {
		return h, nil, fmt.Errorf("%w: %d bytes, want %d", errMap, len(b), mapSize(h.obj))
	}
	t := newTable(h.obj, z)
	for i := range t.groups {
		at := sectorSize * (1 + i)
		if err := t.decodeGroup(i, b[at:at+sectorSize]); err != nil {
			return h, nil, err
		}
	}
	t.recount()
	return h, t, nil
}

// sameBytes reports whether two descriptions stand for the same bytes cut in
// the same way. Sparse is only a hint.
func sameBytes(a, b chunk.Object) bool {
	a.Sparse, b.Sparse = false, false
	return a == b
}

// allZero reports whether every byte of b is zero.
func allZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
