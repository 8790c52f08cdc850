package redis

import (
	"encoding/binary"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
)

// reply makes an answer of a server of the bytes of a fuzzer: nil, numbers, strings
// and lists.
func reply(b []byte, depth int) (v any, rest []byte) {
	if len(b) == 0 {
		return nil, nil
	}
	kind, b := b[0], b[1:]
	switch kind % 4 {
	case 1:
		if len(b) < 8 {
			return int64(len(b)), nil
		}
		return int64(binary.LittleEndian.Uint64(b)), b[8:]
	case 2:
		n := 0
		if len(b) > 0 {
			n, b = min(int(b[0]), len(b)-1), b[1:]
		}
		return string(b[:n]), b[n:]
	case 3:
		list := []any{}
		for n := int(kind / 4); n > 0 && depth < 3; n-- {
			var one any
			one, b = reply(b, depth+1)
			list = append(list, one)
		}
		return list, b
	}
	return nil, b
}

// told is the bytes that reply makes a list of strings of.
func told(parts ...string) []byte {
	b := []byte{byte(len(parts))*4 + 3}
	for _, p := range parts {
		b = append(append(b, 2, byte(len(p))), p...)
	}
	return b
}

// FuzzReplies: no answer of a server, of whatever shape, does more than be an error.
func FuzzReplies(f *testing.F) {
	record := digits(12) + "-value"
	f.Add(told("100", digits(7), "2", "a", record, "b", record, "c"))
	f.Add(told("100", digits(7), "1", "b", digits(3)+"L"+digits(101)+"abcdefghijklmnopv"))
	f.Add(told(record, digits(4)))
	f.Add([]byte{7, 1, 2, 3})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, _ := reply(b, 0)
		c := &call{reply: v}
		p, err := parsePage("d/1", c, "", 3, true)
		if err != nil {
			require.ErrorIs(t, err, meta.ErrFormat)
		} else {
			require.LessOrEqual(t, len(p.Records), 3)
			if _, err := parseCursor(p.Next); err != nil {
				require.ErrorIs(t, err, meta.ErrFormat)
			}
		}
		for _, script := range []*script{nil, {}} {
			out := []meta.Record{{Slot: "d/1", Field: "a"}, {Slot: "d/1"}}
			if _, err := (&part{call: call{reply: v, script: script}, where: []int{0, 1}}).fill(out); err != nil {
				require.ErrorIs(t, err, meta.ErrFormat)
			}
		}
		_, err = c.strings(1)
		require.ErrorIs(t, err, meta.ErrFormat)
		if text, err := c.text(); err == nil {
			_, _, _ = cutString(text)
		}
		_ = number(v)
	})
}

// FuzzStream: entries of the stream and what a subscription brings.
func FuzzStream(f *testing.F) {
	f.Add("1-2", "5", "d/1", digits(1)+digits(2)+"S1:a2:xy-")
	f.Add("x", "", "", "")
	f.Add("1-", "-1", "store", digits(1)+digits(2)+"!")
	f.Fuzz(func(t *testing.T, id, number, slot, text string) {
		if isID(id) {
			require.False(t, idLess(id, id))
			_ = idLess(id, "5-5") || idLess("5-5", id)
		}
		s := &Store{}
		s.target.prefix = "p"
		on := func(ch meta.SlotChange) error {
			require.Len(t, ch.Before, len(ch.Events))
			return nil
		}
		require.NoError(t, s.take(&redis.Message{Channel: "p:{" + slot + "}+", Payload: text}, on))
		r := &streamReader{s: s, on: on, last: "0-0"}
		m := redis.XMessage{ID: id, Values: map[string]any{"n": number, "s": slot, "e": text}}
		require.NoError(t, r.tell(m))
		require.NoError(t, r.tell(redis.XMessage{ID: id, Values: map[string]any{"n": 5}}))
	})
}
