package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
)

// Types of messages.
const (
	frameAsk     = 1 // reader: blocks wanted
	frameGrant   = 2 // provider: where they lie
	frameVerdict = 3 // provider: no blocks, or what became of a lease
	frameReturn  = 4 // reader: a lease is given back
)

const (
	// maxFrame bounds a frame without its length, in bytes. Each message in it
	// has its own length before it.
	maxFrame = 64 << 10
	// maxBlocks bounds the blocks of one ask.
	maxBlocks = 256
	// maxText bounds a text for people, in bytes.
	maxText = 256
	// maxTTL bounds what a provider can say of a lease.
	maxTTL = time.Hour
)

var errWire = errors.New("malformed message")

// message is what a frame is made of.
type message interface{ append([]byte) []byte }

// ask is the wish for a lease on some blocks, all of them or none; or, ahead,
// for a lease on each of those that can be had at once, with no word on the
// others.
type ask struct {
	id    uint32 // chosen by the reader
	ahead bool
	refs  []chunk.BlockRef
}

// place is where a block of a grant lies in the provider's memory.
type place struct {
	object chunk.ObjectID
	index  int
	len    int64
	addr   uint64
	key    uint32
	sum    uint32
	zero   bool // nothing lies anywhere: every byte is zero
	fixed  bool // the source cannot change: there is nothing to hear when the lease is given back
}

// Flags of a place.
const (
	flagZero  = 1
	flagFixed = 2
)

// grant is a lease on blocks.
type grant struct {
	id          uint32 // of the ask
	ahead       bool   // of an ask ahead: on one block
	lease       uint64
	incarnation uint64 // of the provider
	ttl         time.Duration
	blocks      []place // in the order asked for
}

// giveBack ends a lease.
type giveBack struct {
	id    uint32 // as in the ask
	lease uint64
	use   use
}

// use is what came of a lease.
type use uint8

const (
	useGood   use = 0 // the bytes match their sums
	useBad    use = 1 // they do not
	useUnused use = 2 // nobody wants them any more
	useTaken  use = 3 // as useGood, and no answer is wanted
)

// code says why there are no blocks, or that a lease ended well.
type code uint8

const (
	codeOK code = iota
	codeFailed
	codeNotHeld
	codeChanged
	codeDamaged
	codeBusy
	codeRefused
	codeClosed
	codeOver   // the lease had ended
	codeMemory // the blocks cannot be registered: ask over TCP
	codeFull   // they cannot be just now
	codes
)

// verdict answers an ask that gets nothing, and every giveBack that is useGood
// or useBad.
type verdict struct {
	id      uint32
	code    code
	retry   time.Duration // of codeBusy
	sending bool          // of codeBusy
	text    string
}

var le = binary.LittleEndian

func (a ask) append(b []byte) []byte {
	b = le.AppendUint32(append(b, frameAsk), a.id)
	b = append(b, bit(a.ahead))
	b = le.AppendUint16(b, uint16(len(a.refs)))
	for _, r := range a.refs {
		b = append(b, r.Object[:]...)
		b = le.AppendUint32(b, uint32(r.Index))
		b = le.AppendUint64(b, uint64(r.Len))
		b = append(b, bit(r.Demand))
	}
	return b
}

func (g grant) append(b []byte) []byte {
	b = le.AppendUint32(append(b, frameGrant), g.id)
	b = append(b, bit(g.ahead))
	b = le.AppendUint64(b, g.lease)
	b = le.AppendUint64(b, g.incarnation)
	b = le.AppendUint32(b, uint32(g.ttl.Milliseconds()))
	b = le.AppendUint16(b, uint16(len(g.blocks)))
	for _, p := range g.blocks {
		b = append(b, p.object[:]...)
		b = le.AppendUint32(b, uint32(p.index))
		b = le.AppendUint64(b, uint64(p.len))
		b = le.AppendUint64(b, p.addr)
		b = le.AppendUint32(b, p.key)
		b = le.AppendUint32(b, p.sum)
		b = append(b, bit(p.zero)*flagZero|bit(p.fixed)*flagFixed)
	}
	return b
}

// fixed says whether the reader is done once it has the bytes.
func (g grant) fixed() bool {
	for _, p := range g.blocks {
		if !p.fixed {
			return false
		}
	}
	return true
}

func (r giveBack) append(b []byte) []byte {
	b = le.AppendUint32(append(b, frameReturn), r.id)
	b = le.AppendUint64(b, r.lease)
	return append(b, byte(r.use))
}

func (v verdict) append(b []byte) []byte {
	b = le.AppendUint32(append(b, frameVerdict), v.id)
	b = append(b, byte(v.code))
	b = le.AppendUint32(b, uint32(v.retry.Milliseconds()))
	b = append(b, bit(v.sending))
	return append(b, v.text[:min(len(v.text), maxText)]...)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// decodeFrame reads a frame, without its length: one message or more.
func decodeFrame(p []byte) ([]any, error) {
	if len(p) == 0 || len(p) > maxFrame {
		return nil, fmt.Errorf("%w: frame of %d bytes", errWire, len(p))
	}
	var all []any
	for r := (&reader{rest: p}); len(r.rest) > 0; {
		n := r.u32()
		if r.bad || uint64(n) > uint64(len(r.rest)) {
			return nil, fmt.Errorf("%w: frame of %d bytes ends in message %d", errWire, len(p), len(all))
		}
		m, err := decode(r.bytes(int(n)))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// decode reads one message: an ask, grant, giveBack or verdict. There is exactly
// one form of each message.
func decode(p []byte) (any, error) {
	if len(p) == 0 || len(p) > maxFrame {
		return nil, fmt.Errorf("%w: message of %d bytes", errWire, len(p))
	}
	r := &reader{rest: p[1:]}
	var m any
	switch p[0] {
	case frameAsk:
		m = r.ask()
	case frameGrant:
		m = r.grant()
	case frameReturn:
		m = giveBack{id: r.u32(), lease: r.u64(), use: use(r.most(byte(useTaken)))}
	case frameVerdict:
		v := verdict{id: r.u32(), code: code(r.most(byte(codes - 1)))}
		v.retry = time.Duration(r.u32()) * time.Millisecond
		v.sending = r.bit()
		v.text = string(r.bytes(min(len(r.rest), maxText)))
		m = v
	default:
		return nil, fmt.Errorf("%w: message of type %d", errWire, p[0])
	}
	if r.bad || len(r.rest) > 0 {
		return nil, fmt.Errorf("%w: message of type %d with %d bytes", errWire, p[0], len(p))
	}
	return m, nil
}

// reader takes a message apart. Once bad, it returns zeros.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) bytes(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return make([]byte, min(n, 16))
	}
	p := r.rest[:n]
	r.rest = r.rest[n:]
	return p
}

func (r *reader) u8() byte    { return r.bytes(1)[0] }
func (r *reader) u16() uint16 { return le.Uint16(r.bytes(2)) }
func (r *reader) u32() uint32 { return le.Uint32(r.bytes(4)) }
func (r *reader) u64() uint64 { return le.Uint64(r.bytes(8)) }

// most reads a byte from 0 to n.
func (r *reader) most(n byte) byte {
	v := r.u8()
	if v > n {
		r.bad = true
	}
	return v
}

func (r *reader) bit() bool { return r.most(1) == 1 }

// index reads the number of a block.
func (r *reader) index() int {
	v := r.u32()
	if v > math.MaxInt32 {
		r.bad = true
	}
	return int(v)
}

// length reads a length; what it may be is judged later.
func (r *reader) length() int64 {
	v := r.u64()
	if v > math.MaxInt64 {
		r.bad = true
	}
	return int64(v)
}

func (r *reader) count() int {
	n := int(r.u16())
	if n > maxBlocks {
		r.bad = true
	}
	return n
}

func (r *reader) ask() ask {
	a := ask{id: r.u32(), ahead: r.bit()}
	for n := r.count(); n > 0 && !r.bad; n-- {
		a.refs = append(a.refs, chunk.BlockRef{
			Object: chunk.ObjectID(r.bytes(16)), Index: r.index(), Len: r.length(), Demand: r.bit(),
		})
	}
	return a
}

func (r *reader) grant() grant {
	g := grant{id: r.u32(), ahead: r.bit(), lease: r.u64(), incarnation: r.u64(), ttl: time.Duration(r.u32()) * time.Millisecond}
	if g.ttl > maxTTL {
		r.bad = true
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		p := place{object: chunk.ObjectID(r.bytes(16)), index: r.index(), len: r.length(), addr: r.u64(), key: r.u32(), sum: r.u32()}
		flags := r.most(flagZero | flagFixed)
		p.zero, p.fixed = flags&flagZero != 0, flags&flagFixed != 0
		g.blocks = append(g.blocks, p)
	}
	return g
}
