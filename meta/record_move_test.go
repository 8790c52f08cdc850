package meta

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta/metapb"
)

var someTx = txID{1, 2, 3}

// TestUnknownGoesAlong: what a newer program wrote into an entry is kept where
// the entry itself is written anew, without its record at hand.
func TestUnknownGoesAlong(t *testing.T) {
	t.Parallel()
	b, err := MarshalEntry(fileEntry(), nil)
	require.NoError(t, err)
	e, err := UnmarshalEntry("a", append(b, unknownField()...), 1, chunk.DefaultChunkSize)
	require.NoError(t, err)
	e.Name, e.Mode = "b", 0o600
	b, err = MarshalEntry(e, nil)
	require.NoError(t, err)
	require.Contains(t, string(b), "from the future")
	got, err := UnmarshalEntry("b", b, 1, chunk.DefaultChunkSize)
	require.NoError(t, err)
	require.Equal(t, e, got)
}

func TestMoveRoundTrip(t *testing.T) {
	t.Parallel()
	e := fileEntry()
	plain, err := MarshalEntry(e, nil)
	require.NoError(t, err)
	plain = append(plain, unknownField()...)
	want := &move{to: Place{5, "\xff"}, tx: newTx(), version: 9}
	b, err := rewriteMove(plain, want, 0)
	require.NoError(t, err)
	got, mv, err := unmarshalMoving("a", b, 0, chunk.DefaultChunkSize)
	require.NoError(t, err)
	require.Equal(t, want, mv)
	require.Equal(t, e.Object, got.Object)

	back, err := rewriteMove(b, nil, 0)
	require.NoError(t, err)
	require.Equal(t, plain, back)
	moved, err := rewriteMove(b, nil, 77)
	require.NoError(t, err)
	got, mv, err = unmarshalMoving("a", moved, 0, chunk.DefaultChunkSize)
	require.NoError(t, err)
	require.Nil(t, mv)
	require.Equal(t, int64(77), got.CtimeNs)
	require.NotEmpty(t, got.unknown)

	// Who writes the entry anew ends a move: only who has settled it does.
	again, err := MarshalEntry(e, b)
	require.NoError(t, err)
	_, mv, err = unmarshalMoving("a", again, 0, chunk.DefaultChunkSize)
	require.NoError(t, err)
	require.Nil(t, mv)
	_, err = rewriteMove([]byte{0xff}, nil, 0)
	require.ErrorIs(t, err, ErrFormat)
}

func TestMoveRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*metapb.Move){
		"no directory": func(m *metapb.Move) { m.Dir = 0 },
		"no name":      func(m *metapb.Move) { m.Name = nil },
		"a path":       func(m *metapb.Move) { m.Name = []byte("a/b") },
		"short tx":     func(m *metapb.Move) { m.Tx = m.Tx[1:] },
		"long tx":      func(m *metapb.Move) { m.Tx = append(m.Tx, 0) },
	} {
		b, err := MarshalEntry(fileEntry(), nil)
		require.NoError(t, err)
		b, err = rewriteMove(b, &move{to: Place{5, "x"}, tx: someTx}, 0)
		require.NoError(t, err)
		var m metapb.Entry
		require.NoError(t, proto.Unmarshal(b, &m))
		change(m.Move)
		b, err = proto.Marshal(&m)
		require.NoError(t, err)
		_, err = UnmarshalEntry("a", b, 0, chunk.DefaultChunkSize)
		require.ErrorIs(t, err, ErrFormat, name)
	}
}

func FuzzMoves(f *testing.F) {
	e, _ := MarshalEntry(fileEntry(), nil)
	e, _ = rewriteMove(e, &move{to: Place{5, "x"}, tx: someTx, version: 3}, 0)
	d, _ := marshalDecision(decision{Place{1, "a"}, moveDone}, nil)
	j, _ := marshalDirMove(dirMove{someTx, Place{1, "a"}, 2}, nil)
	dir, _ := marshalDir(DirInfo{Parent: 1, Mode: 0o755, MtimeNs: 1, CtimeNs: 2}, nil)
	for _, b := range [][]byte{e, d, j, dir} {
		f.Add(b)
		f.Add(append(b, unknownField()...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var errs []error
		e, mv, err := unmarshalMoving("a", b, 1, chunk.DefaultChunkSize)
		errs = append(errs, err)
		if err == nil {
			again, err := rewriteMove(b, mv, 0)
			require.NoError(t, err)
			e2, mv2, err := unmarshalMoving("a", again, 1, chunk.DefaultChunkSize)
			require.NoError(t, err)
			require.Equal(t, e, e2)
			require.Equal(t, mv, mv2)
			alone, err := MarshalEntry(e, nil)
			require.NoError(t, err)
			e3, err := UnmarshalEntry("a", alone, 1, chunk.DefaultChunkSize)
			require.NoError(t, err)
			require.Equal(t, e, e3)
		}
		d, err := unmarshalDecision(b)
		errs = append(errs, err)
		if err == nil {
			again, err := marshalDecision(d, b)
			require.NoError(t, err)
			d2, err := unmarshalDecision(again)
			require.NoError(t, err)
			require.Equal(t, d, d2)
		}
		j, err := unmarshalDirMove(b)
		errs = append(errs, err)
		if err == nil {
			again, err := marshalDirMove(j, b)
			require.NoError(t, err)
			j2, err := unmarshalDirMove(again)
			require.NoError(t, err)
			require.Equal(t, j, j2)
		}
		dir, dead, err := unmarshalDir(5, b, 1)
		errs = append(errs, err)
		if err == nil {
			again, err := marshalDir(dir, b)
			require.NoError(t, err)
			dir2, dead2, err := unmarshalDir(5, again, 1)
			require.NoError(t, err)
			require.Equal(t, dir, dir2)
			require.Equal(t, dead, dead2)
		}
		for _, err := range errs {
			if err != nil && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
		}
	})
}
