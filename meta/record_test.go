package meta

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta/metapb"
)

func testObject(blocks int64) chunk.Object {
	return chunk.Object{ID: chunk.ObjectID{1}, Set: chunk.SetID{2}, Size: blocks * chunk.MinBlockSize, ChunkSize: 4 * chunk.MinBlockSize, BlockSize: chunk.MinBlockSize}
}

func fileEntry() Entry {
	o := testObject(3)
	return Entry{Name: "a", Kind: KindFile, Inode: 5, Mode: 0o644, UID: 1, GID: 2, MtimeNs: -3, CtimeNs: 4, Size: o.Size, Object: o}
}

func TestEntryRoundTrip(t *testing.T) {
	t.Parallel()
	sparse := fileEntry()
	sparse.Object.Sparse = true
	sparse.Object.BlockSize, sparse.Object.ChunkSize = chunk.DefaultBlockSize, chunk.DefaultChunkSize
	for _, e := range []Entry{
		fileEntry(), sparse,
		{Name: "empty", Kind: KindFile, Inode: 2, Mode: 0o7777},
		{Name: "d", Kind: KindDir, Inode: 1 << 63, Mode: 0o755},
		{Name: "l", Kind: KindSymlink, Inode: 3, Target: "../\xff\n"},
		{Name: strings.Repeat("n", NameMax), Kind: KindSymlink, Inode: 3, Target: strings.Repeat("t", targetMax)},
	} {
		b, err := MarshalEntry(e, nil)
		require.NoError(t, err, e.Name)
		e.Version = 77
		got, err := UnmarshalEntry(e.Name, b, 77, 1)
		require.NoError(t, err, e.Name)
		require.Equal(t, e, got)
	}
}

func TestEntryDefaults(t *testing.T) {
	t.Parallel()
	b, err := proto.Marshal(&metapb.Entry{
		Kind: metapb.Kind_KIND_FILE, Inode: 9, Size: 10, Object: make16(1), Set: make16(2),
	})
	require.NoError(t, err)
	e, err := UnmarshalEntry("a", b, 1, 128<<20)
	require.NoError(t, err)
	require.Equal(t, int64(128<<20), e.Object.ChunkSize, "the store's default")
	require.Equal(t, int64(4<<20), e.Object.BlockSize)
}

func make16(first byte) []byte { return append([]byte{first}, make([]byte, 15)...) }

func TestEntryRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*metapb.Entry){
		"no kind":              func(m *metapb.Entry) { m.Kind = 0 },
		"unknown kind":         func(m *metapb.Entry) { m.Kind = 9 },
		"no inode":             func(m *metapb.Entry) { m.Inode = 0 },
		"root's inode":         func(m *metapb.Entry) { m.Inode = 1 },
		"short object":         func(m *metapb.Entry) { m.Object = m.Object[:15] },
		"no set":               func(m *metapb.Entry) { m.Set = nil },
		"zero set":             func(m *metapb.Entry) { m.Set = make([]byte, 16) },
		"negative size":        func(m *metapb.Entry) { m.Size = -1 },
		"huge size":            func(m *metapb.Entry) { m.Size = 1<<63 - 1 },
		"odd block size":       func(m *metapb.Entry) { m.BlockSize = 5000 },
		"negative block size":  func(m *metapb.Entry) { m.BlockSize = -4096 },
		"odd chunk size":       func(m *metapb.Entry) { m.ChunkSize = chunk.MinBlockSize + 1 },
		"mode":                 func(m *metapb.Entry) { m.Mode = 0o100644 },
		"offset":               func(m *metapb.Entry) { m.Offset = 1 },
		"file with target":     func(m *metapb.Entry) { m.Target = []byte("x") },
		"size without object":  func(m *metapb.Entry) { m.Object = nil },
		"directory of bytes":   func(m *metapb.Entry) { m.Kind = metapb.Kind_KIND_DIR },
		"symlink of bytes":     func(m *metapb.Entry) { m.Kind = metapb.Kind_KIND_SYMLINK; m.Target = []byte("x") },
		"symlink to nothing":   func(m *metapb.Entry) { m.Kind = metapb.Kind_KIND_SYMLINK; m.Object = nil },
		"symlink's long way":   func(m *metapb.Entry) { *m = metapb.Entry{Kind: 3, Inode: 2, Target: make([]byte, targetMax+1)} },
		"too many blocks":      func(m *metapb.Entry) { m.Size = 1 << 50 },
		"chunk under block":    func(m *metapb.Entry) { m.ChunkSize = 1; m.BlockSize = 4096 },
		"block size above max": func(m *metapb.Entry) { m.BlockSize = 128 << 20; m.ChunkSize = 128 << 20 },
	} {
		b, err := MarshalEntry(fileEntry(), nil)
		require.NoError(t, err)
		var m metapb.Entry
		require.NoError(t, proto.Unmarshal(b, &m))
		change(&m)
		b, err = proto.Marshal(&m)
		require.NoError(t, err)
		_, err = UnmarshalEntry("the-name", b, 1, chunk.DefaultChunkSize)
		require.ErrorIs(t, err, ErrFormat, name)
		require.ErrorContains(t, err, "the-name", name)
	}
	bad := fileEntry()
	bad.Size++
	_, err := MarshalEntry(bad, nil)
	require.Error(t, err)
	bad = fileEntry()
	bad.Name = "a/b"
	_, err = MarshalEntry(bad, nil)
	require.ErrorIs(t, err, ErrName)
}

// unknownField is a field of a newer program, as it lies in a record.
func unknownField() []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 2000, protowire.BytesType), "from the future")
}

// TestUnknownFieldsKept: what a newer program wrote survives a rewrite.
func TestUnknownFieldsKept(t *testing.T) {
	t.Parallel()
	o := testObject(20)
	g := newSumGroup(o, 0)
	g.Known.Set(3)
	for name, rewrite := range map[string]func(old []byte) ([]byte, error){
		"entry":    func(old []byte) ([]byte, error) { return MarshalEntry(fileEntry(), old) },
		"object":   func(old []byte) ([]byte, error) { return marshalObject(ObjectRecord{Object: o}, old) },
		"sums":     func(old []byte) ([]byte, error) { return marshalSumGroup(g, old) },
		"provider": func(old []byte) ([]byte, error) { return marshalProvider(providerRecord{complete: true}, old) },
		"dir":      func(old []byte) ([]byte, error) { return marshalDir(DirInfo{Mode: 0o700}, old) },
		"decision": func(old []byte) ([]byte, error) {
			return marshalDecision(decision{Place{1, "a"}, moveOpen}, old)
		},
		"dir move": func(old []byte) ([]byte, error) {
			return marshalDirMove(dirMove{someTx, Place{1, "a"}, 2}, old)
		},
	} {
		old, err := rewrite(nil)
		require.NoError(t, err, name)
		b, err := rewrite(append(old, unknownField()...))
		require.NoError(t, err, name)
		require.Contains(t, string(b), "from the future", name)
		again, err := rewrite(b)
		require.NoError(t, err, name)
		require.Equal(t, b, again, name)
		_, err = rewrite([]byte{0xff})
		require.ErrorIs(t, err, ErrFormat, name)
	}
}

func TestStoreRecord(t *testing.T) {
	t.Parallel()
	want := newStoreInfo(8 << 20)
	b, err := MarshalStore(want)
	require.NoError(t, err)
	got, err := UnmarshalStore(append(b, unknownField()...))
	require.NoError(t, err)
	want.Created = false
	require.Equal(t, want, got)

	want.ReadOnly = true
	b, err = MarshalStore(want)
	require.NoError(t, err)
	got, err = UnmarshalStore(b)
	require.NoError(t, err)
	require.Equal(t, want, got)

	for name, change := range map[string]func(*metapb.Store){
		"newer":      func(m *metapb.Store) { m.Format, m.MinReader, m.MinWriter = 9, 9, 9 },
		"no format":  func(m *metapb.Store) { m.Format = 0 },
		"secret":     func(m *metapb.Store) { m.Secret = m.Secret[1:] },
		"epoch":      func(m *metapb.Store) { m.Epoch = nil },
		"cluster":    func(m *metapb.Store) { m.ClusterId = nil },
		"chunk size": func(m *metapb.Store) { m.ChunkSize = 0 },
	} {
		var m metapb.Store
		require.NoError(t, proto.Unmarshal(b, &m))
		change(&m)
		bad, err := proto.Marshal(&m)
		require.NoError(t, err)
		_, err = UnmarshalStore(bad)
		require.ErrorIs(t, err, ErrFormat, name)
		if name == "newer" {
			require.ErrorContains(t, err, "newer p2pfs")
		}
	}
}

func TestSumGroupRoundTrip(t *testing.T) {
	t.Parallel()
	o := testObject(GroupBlocks + 13)
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		group := rnd.IntN(2)
		g := newSumGroup(o, group)
		for range rnd.IntN(40) {
			b := rnd.IntN(g.Known.Len())
			g.Known.Set(b)
			g.Sums[b] = rnd.Uint32()
			g.Zero.Set(rnd.IntN(g.Zero.Len()))
		}
		b, err := marshalSumGroup(g, nil)
		require.NoError(t, err)
		got, err := unmarshalSumGroup(o, group, b, 0)
		require.NoError(t, err)
		require.Equal(t, g, got, "seed %d", seed)
	}
}

func TestSplitSets(t *testing.T) {
	t.Parallel()
	sizes := func(ns ...int) (sets []Set) {
		for _, n := range ns {
			sets = append(sets, Set{Value: make([]byte, n)})
		}
		return sets
	}
	for _, tc := range []struct {
		name string
		sets []Set
		want []int
	}{
		{"one", sizes(1), []int{1}},
		{"too many", sizes(make([]int, MaxSets+1)...), []int{MaxSets, 1}},
		{"too long", sizes(applyBytes-1, 1, 1), []int{2, 1}},
		{"one is too long", sizes(2*applyBytes, 1), []int{1, 1}},
	} {
		var got []int
		for _, p := range splitSets(tc.sets) {
			got = append(got, len(p))
		}
		require.Equal(t, tc.want, got, tc.name)
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"etcd://u:secret@h:1,h2/p?tls=true":    "etcd://u:xxxxx@h:1,h2/p?tls=true",
		"etcd://u:sec@ret@h":                   "etcd://u:xxxxx@h",
		"etcd://h/p":                           "etcd://h/p",
		"redis://:secret@h":                    "redis://:xxxxx@h",
		"etcd://h/p?password=secret&tls=1":     "etcd://h/p?password=xxxxx&tls=1",
		"etcd://h/p?Pass%77ord=secret":         "etcd://h/p?Pass%77ord=xxxxx",
		"u:secret@h":                           "u:xxxxx@h",
		"etcd://token@h":                       "etcd://xxxxx@h",
		"etcd://u:sec/ret@h":                   "etcd://u:xxxxx@h",
		"":                                     "",
		"redis+sentinel://u:secret@a:1,b:2/s0": "redis+sentinel://u:xxxxx@a:1,b:2/s0",
	} {
		require.Equal(t, want, RedactURL(in), in)
	}
}

func FuzzEntry(f *testing.F) {
	b, _ := MarshalEntry(fileEntry(), nil)
	f.Add("a", b)
	f.Add("", append(b, unknownField()...))
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		e, err := UnmarshalEntry(name, b, 1, chunk.DefaultChunkSize)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		again, err := MarshalEntry(e, b)
		require.NoError(t, err)
		got, err := UnmarshalEntry(name, again, 1, chunk.DefaultChunkSize)
		require.NoError(t, err)
		require.Equal(t, e, got)
	})
}

func FuzzOthers(f *testing.F) {
	s, _ := MarshalStore(newStoreInfo(chunk.DefaultChunkSize))
	o, _ := marshalObject(ObjectRecord{Object: testObject(5), Keepers: []chunk.NodeID{{1}}, References: []Reference{{Dir: 1, Name: "x"}}}, nil)
	g := newSumGroup(testObject(20), 0)
	g.Known.Set(7)
	sums, _ := marshalSumGroup(g, nil)
	d, _ := marshalDir(DirInfo{Parent: 1, Mode: 0o755}, nil)
	n, _ := marshalNode(NodeInfo{Node: chunk.NodeID{1}, Addrs: map[string]string{"tcp": "h:1"}})
	p, _ := marshalProvider(providerRecord{keeper: true}, nil)
	for _, b := range [][]byte{s, o, sums, d, n, p} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var errs []error
		_, err := UnmarshalStore(b)
		errs = append(errs, err)
		r, err := unmarshalObject(chunk.ObjectID{1}, b, 1, chunk.DefaultChunkSize)
		errs = append(errs, err)
		if err == nil {
			_, err = marshalObject(r, b)
			require.NoError(t, err)
		}
		for _, blocks := range []int64{1, 20, 2*GroupBlocks + 1} {
			g, err := unmarshalSumGroup(testObject(blocks), 0, b, 1)
			errs = append(errs, err)
			if err == nil {
				_, err = marshalSumGroup(g, b)
				require.NoError(t, err)
			}
		}
		_, _, err = UnmarshalDir(5, b)
		errs = append(errs, err)
		_, err = unmarshalNode(chunk.NodeID{1}, b)
		errs = append(errs, err)
		_, _, err = unmarshalProvider(string(b), b)
		errs = append(errs, err)
		for _, err := range errs {
			if err != nil && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
		}
	})
}
