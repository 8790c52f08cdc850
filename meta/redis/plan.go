package redis

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/p2pfs/p2pfs/meta"
)

// plan is the changes of one Apply as they are sent: all in one text, the one that
// the log will have, so that neither the client nor the server handles an argument
// for each field and value.
type plan struct {
	text     []byte   // of each change "S", "L" or "D", and LENGTH:BYTES of field and value
	cuts     []byte   // msgpack: where in text fields and values are
	conds    []byte   // of each change the letter of its field's condition, or "-"
	versions []uint64 // of each change, if its letter is "v"
	sets     []meta.Set
	next     int // the change that the next condition is likely to be on
}

func newPlan(sets []meta.Set, leased bool) *plan {
	size := 0
	for _, s := range sets {
		size += len(s.Field) + len(s.Value) + 16
	}
	p := &plan{
		text: make([]byte, 0, size), cuts: make([]byte, 0, 5+20*len(sets)),
		conds: make([]byte, len(sets)), versions: make([]uint64, len(sets)), sets: sets,
	}
	p.cuts = binary.BigEndian.AppendUint32(append(p.cuts, 0xdd), uint32(4*len(sets)))
	op := byte('S')
	if leased {
		op = 'L'
	}
	for i, s := range sets {
		p.conds[i] = '-'
		if s.Value == nil {
			p.text = append(p.text, 'D')
			addText(p, s.Field)
			p.cut(0, 0)
			continue
		}
		p.text = append(p.text, op)
		addText(p, s.Field)
		addText(p, s.Value)
	}
	return p
}

// addText adds LENGTH:BYTES and where the bytes are.
func addText[T string | []byte](p *plan, s T) {
	p.text = append(strconv.AppendInt(p.text, int64(len(s)), 10), ':')
	first := len(p.text) + 1
	p.text = append(p.text, s...)
	p.cut(first, len(p.text))
}

// cut adds two numbers to a msgpack list.
func (p *plan) cut(first, last int) {
	p.cuts = binary.BigEndian.AppendUint32(append(p.cuts, 0xce), uint32(first))
	p.cuts = binary.BigEndian.AppendUint32(append(p.cuts, 0xce), uint32(last))
}

// require takes a condition on a field that is changed, if it is the first on it.
func (p *plan) require(c meta.If, kind string) bool {
	if c.NoOthers {
		return false
	}
	i := p.next
	if i >= len(p.sets) || p.sets[i].Field != c.Field {
		i = slices.IndexFunc(p.sets, func(s meta.Set) bool { return s.Field == c.Field })
	}
	if i < 0 || p.conds[i] != '-' {
		return false
	}
	p.conds[i], p.versions[i], p.next = kind[0], c.Version, i+1
	return true
}

// digits returns the versions that conditions want, one after the other.
func (p *plan) digits() []byte {
	var out []byte
	for i, k := range p.conds {
		if k == 'v' {
			out = appendDigits(out, p.versions[i])
		}
	}
	return out
}
