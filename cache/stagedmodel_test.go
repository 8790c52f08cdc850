package cache

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// model is a staged file beside a plain file that is changed in the same way.
type model struct {
	t     *testing.T
	r     *rand.Rand
	c     *Cache
	cfg   Config
	plain *os.File
	s     *Staged
	id    uint64
	bs    int64
	// objects that were published, and must stay what they were.
	objects []chunk.Object
	bytes   [][]byte
	remote  map[chunk.ObjectID][]byte // bases that are not here
	reflink bool
}

const modelMax = 40 * bs

func newModel(t *testing.T, seed uint64, blockSize int64, cfg Config) *model {
	m := &model{t: t, r: rand.New(rand.NewPCG(seed, 2)), cfg: cfg, bs: blockSize, remote: make(map[chunk.ObjectID][]byte)}
	m.c = openCache(t, cfg)
	var err error
	m.plain, err = os.Create(filepath.Join(t.TempDir(), "plain"))
	require.NoError(t, err)
	t.Cleanup(func() { m.plain.Close() })
	return m
}

// base returns a base with these bytes: here, or only elsewhere.
func (m *model) base(b []byte, here bool) *Base {
	o := chunk.Object{ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: int64(len(b)), ChunkSize: 8 * bs, BlockSize: []int64{bs, 2 * bs}[m.r.IntN(2)]}
	if here && o.Size > 0 {
		f, err := m.c.Open(m.t.Context(), o)
		require.NoError(m.t, err)
		for i := range o.Blocks() {
			p := b[o.Block(i).Off:o.Block(i).End()]
			if allZero(p) {
				z := chunk.NewBitmap(o.Blocks())
				z.Set(i)
				require.NoError(m.t, f.PutZero(z))
				continue
			}
			require.NoError(m.t, f.Put(i, p, chunk.Sum(p)))
		}
		require.NoError(m.t, f.Close())
	}
	m.remote[o.ID] = b
	return &Base{Object: o, Read: m.reader(o.ID)}
}

func (m *model) reader(id chunk.ObjectID) BaseRead {
	return func(_ context.Context, off int64, p []byte) error {
		copy(p, m.remote[id][off:off+int64(len(p))])
		return nil
	}
}

// play makes the file system one that can share blocks, as far as anybody can
// tell.
func (m *model) play() {
	if !m.reflink {
		return
	}
	m.c.reflink = func(to, from *os.File) error {
		_, err := io.Copy(to, io.NewSectionReader(from, 0, 1<<40))
		return err
	}
}

func (m *model) stage(base *Base) {
	m.id++
	var err error
	m.s, err = m.c.Stage(m.t.Context(), m.id, m.bs, base)
	require.NoError(m.t, err)
	require.NoError(m.t, m.s.SetNote([]byte{1}, false))
}

// some returns bytes, zeros often enough to make whole blocks of them.
func (m *model) some(n int) []byte {
	b := make([]byte, n)
	if m.r.IntN(4) > 0 {
		for i := range b {
			b[i] = byte(m.r.Uint32())
		}
	}
	return b
}

// place returns a range, whole blocks often.
func (m *model) place() (off, n int64) {
	off, n = m.r.Int64N(modelMax), 1+m.r.Int64N(3*m.bs)
	if m.r.IntN(3) == 0 {
		off, n = off/m.bs*m.bs, (1+n/m.bs)*m.bs
	}
	return off, n
}

func (m *model) size() int64 {
	st, err := m.plain.Stat()
	require.NoError(m.t, err)
	return st.Size()
}

func (m *model) step() {
	t, ctx := m.t, m.t.Context()
	off, n := m.place()
	switch m.r.IntN(14) {
	case 0, 1, 2:
		p := m.some(int(n))
		require.NoError(t, m.s.WriteAt(ctx, p, off))
		_, err := m.plain.WriteAt(p, off)
		require.NoError(t, err)
	case 3, 4: // on and on, as most do
		at := min(off, m.size())
		for range 5 {
			p := m.some(1 + m.r.IntN(3000))
			require.NoError(t, m.s.WriteAt(ctx, p, at))
			_, err := m.plain.WriteAt(p, at)
			require.NoError(t, err)
			at += int64(len(p))
		}
	case 5, 6:
		p := m.some(int(n))
		at, err := m.s.Append(ctx, p)
		require.NoError(t, err)
		require.Equal(t, m.size(), at)
		_, err = m.plain.WriteAt(p, at)
		require.NoError(t, err)
	case 7:
		require.NoError(t, m.s.Truncate(ctx, off))
		require.NoError(t, m.plain.Truncate(off))
	case 8:
		to := m.size() - m.r.Int64N(m.size()/2+1)
		require.NoError(t, m.s.Truncate(ctx, to))
		require.NoError(t, m.plain.Truncate(to))
	case 9:
		modes := []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE}
		mode := modes[m.r.IntN(len(modes))]
		require.NoError(t, m.s.Allocate(ctx, off, n, mode))
		require.NoError(t, unix.Fallocate(int(m.plain.Fd()), mode, off, n))
	case 10:
		m.check(off, n)
		m.seek(off)
	case 11:
		require.NoError(t, m.s.Sync(ctx))
		m.account()
	case 12:
		if m.r.IntN(4) == 0 {
			m.publish()
		}
	case 13:
		if m.r.IntN(4) == 0 {
			m.reopen()
		}
	}
	require.Equal(t, m.size(), m.s.Size())
}

func (m *model) all() []byte {
	_, err := m.plain.Seek(0, io.SeekStart)
	require.NoError(m.t, err)
	b, err := io.ReadAll(m.plain)
	require.NoError(m.t, err)
	return b
}

func (m *model) check(off, n int64) {
	want, got := make([]byte, n), make([]byte, n)
	k, err1 := m.plain.ReadAt(want, off)
	l, err2 := m.s.ReadAt(m.t.Context(), got, off)
	require.Equal(m.t, k, l)
	require.Equal(m.t, err1, err2)
	require.Equal(m.t, want, got)
}

// seek requires that nothing but zeros is said to be a hole, and that holes end
// where data begins.
func (m *model) seek(off int64) {
	data, err := m.s.Seek(m.t.Context(), off, unix.SEEK_DATA)
	if off >= m.size() {
		require.ErrorIs(m.t, err, unix.ENXIO)
		return
	}
	if errors.Is(err, unix.ENXIO) {
		data = m.size()
	} else {
		require.NoError(m.t, err)
		require.GreaterOrEqual(m.t, data, off)
		hole, err := m.s.Seek(m.t.Context(), data, unix.SEEK_HOLE)
		require.NoError(m.t, err)
		require.Greater(m.t, hole, data)
	}
	require.True(m.t, allZero(m.all()[off:data]), "%d to %d is no hole", off, data)
}

// account requires that the books are right.
func (m *model) account() {
	var st unix.Stat_t
	require.NoError(m.t, unix.Fstat(int(m.s.data.Fd()), &st))
	// The file system may have found another form for its extents since.
	require.InDelta(m.t, st.Blocks*512, m.s.charged, 4*bs)
	require.Equal(m.t, m.s.charged, m.c.Stats().StagedBytes)
}

// publish, and go on with a new file whose base is the object: here, elsewhere,
// or none.
func (m *model) publish() {
	want := m.all()
	o := chunk.Object{ID: chunk.NewObjectID(), Set: chunk.NewSetID(), ChunkSize: 8 * bs, BlockSize: m.bs}
	if m.r.IntN(5) == 0 {
		o.BlockSize = 3*bs - m.bs // 1 for 2 and 2 for 1
	}
	sealed, err := m.s.Publish(m.t.Context(), o)
	require.NoError(m.t, err)
	requireSealed(m.t, sealed, want)
	require.Equal(m.t, want, readStaged(m.t, m.s))
	require.NoError(m.t, m.s.Discard())
	require.NoError(m.t, m.s.Close())
	require.Zero(m.t, m.c.Stats().StagedBytes)
	if sealed.Object.Size > 0 {
		requireObject(m.t, m.c, sealed.Object, want)
		m.objects, m.bytes = append(m.objects, sealed.Object), append(m.bytes, want)
	}
	switch m.r.IntN(3) {
	case 0:
		m.remote[sealed.Object.ID] = want
		m.stage(&Base{Object: sealed.Object, Read: m.reader(sealed.Object.ID)})
	case 1:
		m.stage(m.base(want, false))
	case 2:
		m.stage(nil)
		require.NoError(m.t, m.plain.Truncate(0))
	}
}

// reopen ends the process, as far as that goes.
func (m *model) reopen() {
	require.NoError(m.t, m.s.Close())
	if m.r.IntN(2) == 0 {
		require.NoError(m.t, m.c.Close())
		m.c = openCache(m.t, m.cfg)
		m.play()
	}
	files, err := m.c.StagedFiles()
	require.NoError(m.t, err)
	require.Len(m.t, files, 1)
	require.Equal(m.t, m.id, files[0].ID)
	require.Equal(m.t, m.size(), files[0].Size)
	m.s, err = m.c.OpenStaged(m.id, m.bs, m.reader(files[0].Base.ID))
	require.NoError(m.t, err)
	m.account()
}

func (m *model) run(steps int) {
	for range steps {
		m.step()
	}
	require.Equal(m.t, m.all(), readStaged(m.t, m.s))
	m.publish()
	for i, o := range m.objects {
		requireObject(m.t, m.c, o, m.bytes[i])
	}
	require.NoError(m.t, m.s.Discard())
	require.NoError(m.t, m.s.Close())
	require.Zero(m.t, m.c.Stats().StagedBytes)
}

// W5, W6, W13: whatever is done to a staged file, it reads like a plain file to
// which the same was done, and so does what is published.
func TestStagedModel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		blockSize int64
		base      bool
		here      bool
		tmpfs     bool
		reflink   bool
	}{
		{name: "empty", blockSize: bs},
		{name: "base here", blockSize: 2 * bs, base: true, here: true},
		{name: "base elsewhere", blockSize: bs, base: true},
		{name: "shared blocks", blockSize: bs, base: true, here: true, reflink: true},
		{name: "tmpfs", blockSize: 2 * bs, base: true, tmpfs: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for round := range 4 {
				seed := uint64(time.Now().UnixNano())
				t.Logf("round %d, seed %d", round, seed)
				cfg := config(t)
				if tt.tmpfs {
					cfg.Roots = []string{smallDisk(t, "size=64m")}
				}
				m := newModel(t, seed, tt.blockSize, cfg)
				m.reflink = tt.reflink
				m.play()
				var base *Base
				if tt.base {
					b := m.some(int(m.r.Int64N(modelMax)))
					clear(b[len(b)/3 : len(b)/2])
					base = m.base(b, tt.here)
					_, err := m.plain.Write(b)
					require.NoError(t, err)
				}
				m.stage(base)
				m.run(300)
			}
		})
	}
}
