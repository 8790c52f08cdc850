package verbs

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/chunk/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func messages() []message {
	object := chunk.NewObjectID()
	return []message{
		ask{id: 1},
		ask{id: math.MaxUint32, refs: []chunk.BlockRef{
			{Object: object, Index: math.MaxInt32, Len: math.MaxInt64, Demand: true}, {Object: chunk.NewObjectID(), Len: 1},
		}},
		grant{id: 7, lease: math.MaxUint64, incarnation: math.MaxUint64, ttl: maxTTL},
		grant{id: 7, lease: 8, incarnation: 9, ttl: 30 * time.Second, blocks: []place{
			{object: object, index: 3, len: 4 << 20, addr: math.MaxUint64, key: math.MaxUint32, sum: 0xdeadbeef},
			{object: object, index: 4, len: 1, zero: true},
		}},
		ask{id: 3, ahead: true, refs: []chunk.BlockRef{{Object: object, Index: 5, Len: 4 << 20}}},
		grant{id: 3, ahead: true, lease: 9, blocks: []place{{object: object, index: 5, len: 4 << 20, fixed: true}}},
		grant{id: 4, blocks: []place{{object: object, len: 1, zero: true, fixed: true}}},
		giveBack{id: 1, lease: 2, use: useBad},
		giveBack{id: 1, lease: 3, use: useTaken},
		verdict{id: 1},
		verdict{id: 1, code: codeBusy, retry: 12 * time.Millisecond, sending: true, text: "the block goes elsewhere"},
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	t.Parallel()
	for _, m := range messages() {
		p := m.append(nil)
		got, err := decode(p)
		require.NoError(t, err, "%#v", m)
		require.Equal(t, m, got)
		for n := range p {
			if v, ok := m.(verdict); ok && n >= len(p)-len(v.text) {
				continue // the text may have any length
			}
			_, err := decode(p[:n])
			require.ErrorIs(t, err, errWire, "%#v cut to %d of %d bytes", m, n, len(p))
		}
	}
	full := ask{refs: make([]chunk.BlockRef, maxBlocks)}
	require.LessOrEqual(t, len(full.append(nil)), maxFrame)
	require.LessOrEqual(t, len(grant{blocks: make([]place, maxBlocks)}.append(nil)), maxFrame)
	full.refs = append(full.refs, chunk.BlockRef{})
	_, err := decode(full.append(nil))
	require.ErrorIs(t, err, errWire)
}

func TestMessagesOutOfRange(t *testing.T) {
	t.Parallel()
	for name, p := range map[string][]byte{
		"nothing":          nil,
		"no such type":     {9, 0, 0, 0, 0},
		"too long":         append(verdict{}.append(nil), make([]byte, maxText+1)...),
		"code":             verdict{code: codes}.append(nil),
		"use":              giveBack{use: 4}.append(nil),
		"a lease for ever": grant{ttl: maxTTL + time.Millisecond}.append(nil),
		"negative index":   ask{refs: []chunk.BlockRef{{Index: -1}}}.append(nil),
		"negative length":  grant{blocks: []place{{len: -1}}}.append(nil),
	} {
		_, err := decode(p)
		require.ErrorIs(t, err, errWire, name)
	}
}

// FuzzDecode: what can be read is written in one way only.
func FuzzDecode(f *testing.F) {
	for _, m := range messages() {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := decode(p)
		if err != nil {
			require.ErrorIs(t, err, errWire)
			return
		}
		require.True(t, bytes.Equal(p, m.(message).append(nil)))
	})
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	e := endpoint{qpn: 1<<24 - 1, psn: 5, lid: 6, mtu: 5, reads: 16, gid: [16]byte{0xfe, 0x80}, device: "rxe0"}
	got, err := parseEndpoint(e.String())
	require.NoError(t, err)
	require.Equal(t, e, got)
	for _, change := range []func(*endpoint){
		func(e *endpoint) { e.qpn = 1 << 24 }, func(e *endpoint) { e.psn = 1 << 24 },
		func(e *endpoint) { e.mtu = 0 }, func(e *endpoint) { e.mtu = 6 }, func(e *endpoint) { e.reads = 0 },
	} {
		x := e
		change(&x)
		_, err := parseEndpoint(x.String())
		require.ErrorIs(t, err, errWire)
	}
	for _, s := range []string{"", "zz", "01" + e.String()[2:], e.String()[:20]} {
		_, err := parseEndpoint(s)
		require.ErrorIs(t, err, errWire)
	}
}

// FuzzEndpoint: what can be read is written in one way only.
func FuzzEndpoint(f *testing.F) {
	f.Add(endpoint{qpn: 1, psn: 5, lid: 6, mtu: 5, reads: 16, device: "rxe0"}.String())
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseEndpoint(s)
		if err != nil {
			require.ErrorIs(t, err, errWire)
			return
		}
		require.Equal(t, s, e.String())
	})
}

// TestFrames: messages that fit go in one frame, the rest in further ones.
func TestFrames(t *testing.T) {
	t.Parallel()
	_, provider, own := newPipe(t)
	large := grant{blocks: make([]place, maxBlocks)}
	var said []message
	for range 3 {
		said = append(said, messages()...)
		said = append(said, large, large, large)
	}
	done := make(chan error, 1)
	go func() { done <- own.send(said...) }()
	var got []message
	frames := 0
	for len(got) < len(said) {
		all, err := provider.receive()
		require.NoError(t, err)
		require.NotEmpty(t, all)
		for _, m := range all {
			got = append(got, m.(message))
		}
		frames++
	}
	require.NoError(t, <-done)
	require.Equal(t, len(said), len(got))
	for i := range said {
		require.Equal(t, said[i].append(nil), got[i].append(nil))
	}
	require.EqualValues(t, frames, own.sent.Load())
	require.Less(t, frames, 4)
	for name, p := range map[string][]byte{
		"nothing": nil, "half a length": {1, 0}, "no message": {0, 0, 0, 0}, "cut": {9, 0, 0, 0, frameVerdict}, "too long": make([]byte, maxFrame+1),
	} {
		_, err := decodeFrame(p)
		require.ErrorIs(t, err, errWire, name)
	}
}

// FuzzDecodeFrame: what can be read is written in one way only.
func FuzzDecodeFrame(f *testing.F) {
	part := func(b []byte, m message) []byte {
		p := m.append(nil)
		return append(le.AppendUint32(b, uint32(len(p))), p...)
	}
	var all []byte
	for _, m := range messages() {
		f.Add(part(nil, m))
		all = part(all, m)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := decodeFrame(p)
		if err != nil {
			require.ErrorIs(t, err, errWire)
			return
		}
		var again []byte
		for _, m := range got {
			again = part(again, m.(message))
		}
		require.True(t, bytes.Equal(p, again))
	})
}
