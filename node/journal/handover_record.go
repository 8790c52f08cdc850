package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/p2pfs/p2pfs/meta"
)

const (
	// handoverPiece is about how many bytes of a change one record takes.
	handoverPiece = 64 << 10
	// frameLen is the length of what is before each record's payload: the
	// payload's length and its CRC-32C, little endian.
	frameLen = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// turned is a change and the turn it was handed over in.
type turned struct {
	turn   uint64
	change change
}

// appendFrame appends a record of a change, of which it takes the sets that fit.
func appendFrame(b []byte, turn uint64, c *change) []byte {
	at := len(b)
	b = encodeChange(append(b, make([]byte, frameLen)...), turn, c)
	payload := b[at+frameLen:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(payload, castagnoli))
	return b
}

// decodeFrames reads records up to the first that is not whole, and returns
// how many bytes they take. Values are part of b.
func decodeFrames(b []byte) (found []turned, size int) {
	for len(b)-size >= frameLen {
		frame := b[size:]
		n := uint64(binary.LittleEndian.Uint32(frame))
		if n > uint64(len(frame)-frameLen) {
			break
		}
		payload := frame[frameLen : frameLen+n]
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(frame[4:]) {
			break
		}
		turn, c, err := decodeChange(payload)
		if err != nil {
			break
		}
		found = append(found, turned{turn, c})
		size += frameLen + int(n)
	}
	return found, size
}

// The kinds of changes in a record.
const (
	changeNames = iota + 1
	changeTold
	changeForget
	changeWay
	changeMoved
)

// encodeChange appends a change, of which it takes the sets that fit into a
// piece.
func encodeChange(b []byte, turn uint64, c *change) []byte {
	kind := byte(changeNames)
	switch {
	case c.forget != nil:
		kind = changeForget
	case c.way != nil:
		kind = changeWay
	case c.into != 0:
		kind = changeMoved
	case c.told:
		kind = changeTold
	}
	b = append(binary.AppendUvarint(b, turn), kind)
	b = binary.BigEndian.AppendUint64(b, uint64(c.dir))
	b = appendOrigin(b, c.at)
	switch kind {
	case changeWay:
		b = binary.BigEndian.AppendUint64(b, uint64(c.parent))
		return append(appendBytes(b, c.name), c.way...)
	case changeMoved:
		return binary.BigEndian.AppendUint64(b, uint64(c.into))
	}
	for len(c.sets) > 0 && len(b) < handoverPiece {
		s := c.sets[0]
		b, c.sets = appendBytes(b, s.Field), c.sets[1:]
		switch {
		case kind == changeForget:
			b, c.forget = appendOrigin(b, c.forget[0]), c.forget[1:]
		case s.Value == nil:
			b = append(b, 0)
		default:
			b = appendBytes(append(b, 1), s.Value)
		}
	}
	return b
}

func appendOrigin(b []byte, o meta.Origin) []byte {
	return binary.AppendUvarint(append(b, o.Epoch[:]...), o.Version)
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeChange reads what encodeChange wrote. Values are part of b.
func decodeChange(b []byte) (turn uint64, c change, err error) {
	r := reader{b: b}
	turn = r.uvarint()
	kind := r.take(1)
	c = change{dir: r.inode(), at: r.origin()}
	if r.bad {
		return 0, change{}, fmt.Errorf("%w: change cut short", errRecord)
	}
	switch kind[0] {
	case changeWay:
		c.parent, c.name = r.inode(), string(r.bytes())
		c.way = r.take(uint64(len(r.b)))
	case changeMoved:
		if c.into = r.inode(); c.into == 0 {
			r.bad = true
		}
	case changeForget:
		for c.forget = []meta.Origin{}; len(r.b) > 0 && !r.bad; {
			c.sets = append(c.sets, meta.Set{Field: string(r.bytes())})
			c.forget = append(c.forget, r.origin())
		}
	case changeNames, changeTold:
		c.told = kind[0] == changeTold
		for len(r.b) > 0 && !r.bad {
			s := meta.Set{Field: string(r.bytes())}
			if has := r.take(1); !r.bad && has[0] != 0 {
				s.Value = r.bytes()
			}
			c.sets = append(c.sets, s)
		}
	default:
		r.bad = true
	}
	if r.bad || len(r.b) > 0 {
		return 0, change{}, fmt.Errorf("%w: change of kind %d", errRecord, kind[0])
	}
	return turn, c, nil
}

// reader takes values off b; bad tells that one was not there.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
	}
	r.take(uint64(max(n, 0)))
	return v
}

func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

func (r *reader) inode() meta.InodeID {
	if v := r.take(8); v != nil {
		return meta.InodeID(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (r *reader) origin() (o meta.Origin) {
	copy(o.Epoch[:], r.take(uint64(len(o.Epoch))))
	o.Version = r.uvarint()
	return o
}
