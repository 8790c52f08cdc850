package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

func sampleChanges() []change {
	at := meta.Origin{Epoch: meta.Epoch{1, 2}, Version: 300}
	return []change{
		{dir: 1, at: at, sets: []meta.Set{{Field: "a", Value: []byte("x")}, {Field: "gone"}, {Field: "", Value: []byte{}}}},
		{dir: 2, at: at, sets: []meta.Set{{Field: "\xff", Value: []byte("y")}}, told: true},
		{dir: 3, sets: []meta.Set{{Field: "a"}, {Field: "b"}}, forget: []meta.Origin{at, {Version: 1 << 60}}},
		{dir: 4, at: at, way: []byte("entry"), name: "n", parent: 1},
		{dir: 5, into: 6},
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	var b []byte
	var ends []int
	for i, c := range sampleChanges() {
		b = appendFrame(b, uint64(i+1), &c)
		ends = append(ends, len(b))
	}
	// Cut anywhere, or changed in any byte: what is before that is there.
	for cut := range len(b) + 1 {
		whole := 0
		for whole < len(ends) && ends[whole] <= cut {
			whole++
		}
		torn := append(b[:cut:cut], bytes.Repeat([]byte{0xa5}, 20)...)
		if whole > 0 && ends[whole-1] == cut { // as a crash of the machine leaves it
			torn = append(b[:cut:cut], make([]byte, 20)...)
		}
		if cut < len(b) {
			changed := bytes.Clone(b)
			changed[cut] ^= 0x40
			got, _ := decodeFrames(changed)
			require.Len(t, got, whole)
		}
		for _, b := range [][]byte{b[:cut], torn} {
			got, size := decodeFrames(b)
			require.Len(t, got, whole)
			for i, want := range sampleChanges()[:whole] {
				require.Equal(t, turned{uint64(i + 1), want}, got[i])
				require.Equal(t, ends[whole-1], size)
			}
		}
	}
}

// One change of very many names is written in pieces.
func TestPieces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var h handover
	_, err := h.open(dir, 7)
	require.NoError(t, err)
	c := change{dir: 9}
	for i := range 5000 {
		c.sets = append(c.sets, meta.Set{Field: fmt.Sprintf("file-%d", i), Value: make([]byte, 100)})
	}
	require.NoError(t, h.append(&c))
	require.Len(t, c.sets, 5000)
	require.LessOrEqual(t, cap(h.buf), 2*handoverPiece)
	h.close()
	var again handover
	found, err := again.open(dir, 7)
	require.NoError(t, err)
	defer again.close()
	require.Greater(t, len(found), 5)
	var sets []meta.Set
	for _, f := range found {
		sets = append(sets, f.sets...)
	}
	require.Equal(t, c.sets, sets)
	require.Equal(t, uint64(9), again.turn)

	again.files[again.turn%2].size = handoverMax
	require.ErrorIs(t, again.append(&c), errHandoverFull)
}

// What the database has is not taken again, and what comes after a torn tail
// is not lost.
func TestTurnsAndTornTail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := sampleChanges()
	write := func(file int, b []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("journal.log%d", file)), b, 0o600))
	}
	frame := func(turn uint64, c change) []byte { return appendFrame(nil, turn, &c) }
	write(0, slices.Concat(frame(2, all[0]), frame(4, all[2]), []byte("torn")))
	write(1, frame(3, all[1]))
	for taken, want := range [][]change{all[:3], all[:3], all[1:3], all[2:3], nil, nil} { // turns 2, 3, 4
		var h handover
		found, err := h.open(dir, uint64(taken))
		require.NoError(t, err)
		require.Equal(t, want, found)
		require.Equal(t, uint64(max(taken, 4)+1), h.turn)
		h.close()
	}
	var h handover
	_, err := h.open(dir, 1)
	require.NoError(t, err)
	h.turn = 6 // the database took nothing: the file with the torn tail goes on
	require.NoError(t, h.append(&all[3]))
	h.close()
	found, err := h.open(dir, 1)
	require.NoError(t, err)
	require.Equal(t, all[:4], found)
	h.close()
}

func FuzzHandover(f *testing.F) {
	var b []byte
	for i, c := range sampleChanges() {
		b = appendFrame(b, uint64(i), &c)
		f.Add(encodeChange(nil, 1<<40, &c), false)
	}
	f.Add(b, true)
	f.Fuzz(func(t *testing.T, b []byte, framed bool) {
		if framed {
			found, size := decodeFrames(b)
			require.LessOrEqual(t, size, len(b))
			require.LessOrEqual(t, len(found)*frameLen, size)
			return
		}
		turn, c, err := decodeChange(b)
		if err != nil {
			require.ErrorIs(t, err, errRecord)
			return
		}
		want := c
		var again []byte
		for rest := c; ; { // a piece of a change may be one that takes no more
			again = encodeChange(again[:0], turn, &rest)
			gotTurn, got, err := decodeChange(again)
			require.NoError(t, err)
			require.Equal(t, turn, gotTurn)
			require.Equal(t, want.sets[:len(got.sets)], got.sets)
			require.Equal(t, []any{want.dir, want.at, want.way, want.name, want.parent, want.into, want.told}, []any{got.dir, got.at, got.way, got.name, got.parent, got.into, got.told})
			if want.sets = want.sets[len(got.sets):]; len(rest.sets) == 0 {
				return
			}
		}
	})
}
