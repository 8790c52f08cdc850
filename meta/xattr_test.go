package meta

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta/metapb"
)

// withXAttrs packs attributes one after another.
func withXAttrs(t testing.TB, pairs ...string) XAttrs {
	t.Helper()
	var x XAttrs
	for i := 0; i < len(pairs); i += 2 {
		var err error
		x, err = x.Apply(XAttrChange{Name: pairs[i], Value: pairs[i+1]})
		require.NoError(t, err)
	}
	return x
}

func TestXAttrsRules(t *testing.T) {
	t.Parallel()
	x := withXAttrs(t, "user.b", "2", "user.a", "\x00\xff")
	room := XAttrsMax - len(x) - xattrHeader - len("user.c")
	for _, tc := range []struct {
		name   string
		change XAttrChange
		want   error
	}{
		{"set a new one", XAttrChange{Name: "user.c", Value: "3"}, nil},
		{"set one again", XAttrChange{Name: "user.a", Value: "3"}, nil},
		{"set to nothing", XAttrChange{Name: "user.a"}, nil},
		{"create a new one", XAttrChange{Name: "user.c", Create: true}, nil},
		{"create what is there", XAttrChange{Name: "user.a", Create: true}, ErrExist},
		{"replace what is there", XAttrChange{Name: "user.b", Replace: true}, nil},
		{"replace what is not", XAttrChange{Name: "user.", Replace: true}, ErrNoXAttr},
		{"remove what is there", XAttrChange{Name: "user.b", Remove: true}, nil},
		{"remove what is not", XAttrChange{Name: "user.c", Remove: true}, ErrNoXAttr},
		{"the longest name", XAttrChange{Name: strings.Repeat("n", XAttrNameMax)}, nil},
		{"a longer one", XAttrChange{Name: strings.Repeat("n", XAttrNameMax+1)}, ErrName},
		{"no name", XAttrChange{}, ErrName},
		{"a NUL", XAttrChange{Name: "user.\x00"}, ErrName},
		{"all the room", XAttrChange{Name: "user.c", Value: strings.Repeat("v", room)}, nil},
		{"more than that", XAttrChange{Name: "user.c", Value: strings.Repeat("v", room+1)}, ErrXAttrSpace},
		{"the most that the kernel lets in", XAttrChange{Name: "user.a", Value: strings.Repeat("v", 1<<16)}, ErrXAttrSpace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := x.Apply(tc.change)
			require.NoError(t, got.Check())
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
				require.Equal(t, x, got)
				return
			}
			require.NoError(t, err)
			v, ok := got.Get(tc.change.Name)
			require.Equal(t, !tc.change.Remove, ok)
			require.Equal(t, tc.change.Value, v)
		})
	}
}

// Random changes against a map: what holds the same is the same string.
func TestXAttrsModel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var x XAttrs
	model := map[string]string{}
	for range 2000 {
		c := XAttrChange{Name: strings.Repeat("u", 1+rnd.IntN(20)), Value: strings.Repeat("v", rnd.IntN(300)), Remove: rnd.IntN(3) == 0}
		got, err := x.Apply(c)
		if _, there := model[c.Name]; c.Remove && !there {
			require.ErrorIs(t, err, ErrNoXAttr)
			continue
		}
		require.NoError(t, err)
		if c.Remove {
			c.Value = ""
			delete(model, c.Name)
		} else {
			model[c.Name] = c.Value
		}
		x = got
		require.NoError(t, x.Check())
		require.Equal(t, model, maps.Collect(x.All()))
	}
	names := slices.Collect(maps.Keys(model))
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var again []string
	for _, n := range names {
		again = append(again, n, model[n])
	}
	require.Equal(t, x, withXAttrs(t, again...))
}

func TestXAttrsOfAnEntry(t *testing.T) {
	t.Parallel()
	e := fileEntry()
	e.XAttrs = withXAttrs(t, "user.a", "1", "user.b", "")
	b, err := MarshalEntry(e, nil)
	require.NoError(t, err)
	got, err := UnmarshalEntry(e.Name, b, 0, 1)
	require.NoError(t, err)
	require.Equal(t, e, got)
	e.XAttrs = ""
	b, err = MarshalEntry(e, b)
	require.NoError(t, err)
	got, err = UnmarshalEntry(e.Name, b, 0, 1)
	require.NoError(t, err)
	require.Equal(t, e, got)
	plain, err := MarshalEntry(e, nil)
	require.NoError(t, err)
	require.Equal(t, plain, b, "an entry without any is as small as before")

	var m metapb.Entry
	require.NoError(t, proto.Unmarshal(b, &m))
	for name, x := range map[string]string{
		"cut short":     "\x06user.a\x00\x05abc",
		"no length":     "\x06user.a",
		"one too short": "\x06user.a\x00",
		"no name":       "\x00\x00\x00",
		"twice":         "\x01a\x00\x00\x01a\x00\x00",
		"out of order":  "\x01b\x00\x00\x01a\x00\x00",
		"a NUL":         "\x02a\x00\x00\x00",
		"too much":      "\x01a\x3f\xff" + strings.Repeat("v", 0x3fff),
	} {
		m.Xattrs = []byte(x)
		b, err := proto.Marshal(&m)
		require.NoError(t, err)
		_, err = UnmarshalEntry("a", b, 1, chunk.DefaultChunkSize)
		require.ErrorIs(t, err, ErrFormat, name)
		e.XAttrs = XAttrs(x)
		_, err = MarshalEntry(e, nil)
		require.Error(t, err, name)
	}
}

func FuzzXAttrs(f *testing.F) {
	f.Add("", "user.a", "1", false)
	f.Add(string(withXAttrs(f, "user.a", "1", "user.b", "22")), "user.aa", "3", false)
	f.Add("\x06user.a\x00\x05abc", "user.a", "", true)
	f.Fuzz(func(t *testing.T, s, name, value string, remove bool) {
		x := XAttrs(s)
		n := 0
		for name := range x.All() { // whatever it is, it ends
			n += len(name) + xattrHeader
		}
		require.LessOrEqual(t, n, len(s))
		if x.Check() != nil {
			return
		}
		var pairs []string
		for name, value := range x.All() {
			pairs = append(pairs, name, value)
		}
		require.Equal(t, x, withXAttrs(t, pairs...), "canonical")
		y, err := x.Apply(XAttrChange{Name: name, Value: value, Remove: remove})
		require.NoError(t, y.Check())
		if err != nil {
			require.Equal(t, x, y)
			return
		}
		got, ok := y.Get(name)
		require.Equal(t, !remove, ok)
		if !remove {
			require.Equal(t, value, got)
		}
	})
}
