package cache

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzNote(f *testing.F) {
	room := make([]byte, noteAt)
	one := append(room, encodeNote(7, []byte("a note"))...)
	two := append(one, encodeNote(7, nil)...)
	f.Add(one)
	f.Add(two)
	f.Add(two[:len(two)-1])
	f.Add(append(one, encodeNote(8, []byte("of another file"))...))
	f.Add(append(room, noteMagic...))
	f.Fuzz(func(t *testing.T, b []byte) {
		note, err := decodeNotes(7, b)
		if err != nil {
			require.ErrorIs(t, err, errNote)
			return
		}
		require.True(t, bytes.Contains(b, encodeNote(7, note)))
	})
}

func FuzzBaseMap(f *testing.F) {
	z := &zeroSums{}
	o := object(70 * bs)
	h := header{kind: kindBase, obj: o, ident: Identity{Size: 60 * bs}}
	b := h.encode()
	t := newTable(o, z)
	for i := range t.groups {
		s := make([]byte, sectorSize)
		t.encodeGroup(s, i, groupBits{have: 5})
		b = append(b, s...)
	}
	f.Add(b)
	f.Add(b[:sectorSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, table, err := decodeMap(kindBase, b, z)
		if err != nil {
			require.ErrorIs(t, err, errMap)
			return
		}
		require.Len(t, b, int(mapSize(h.obj)))
		m := &baseMap{table: table}
		m.end.Store(clipBase(h, h.obj.Size/2))
		for off := int64(0); off < h.obj.Size; {
			_, end := m.run(off, h.obj.Size)
			require.Greater(t, end, off)
			off = end
		}
	})
}
