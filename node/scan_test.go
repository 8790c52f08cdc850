package node

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

func testScanner() scanner {
	return scanner{set: chunk.NewSetID(), chunkSize: 64 << 10}
}

func TestScanKinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("abc"), 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	require.NoError(t, os.Symlink("../blobs/f", filepath.Join(dir, "l")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o750))
	got, err := testScanner().dir(dir)
	require.NoError(t, err)
	by := map[string]scanned{}
	for _, s := range got {
		by[s.name] = s
	}
	require.Len(t, by, 4)
	require.Equal(t, meta.KindFile, by["f"].kind)
	require.EqualValues(t, 3, by["f"].object.Size)
	require.EqualValues(t, 0o640, by["f"].mode)
	require.True(t, by["empty"].object.ID.IsZero())
	require.Equal(t, "../blobs/f", by["l"].target)
	require.EqualValues(t, len("../blobs/f"), by["l"].size)
	require.Equal(t, meta.KindDir, by["d"].kind)
}

func TestScanRefuses(t *testing.T) {
	t.Parallel()
	t.Run("a fifo", func(t *testing.T) {
		t.Parallel()
		p := filepath.Join(t.TempDir(), "fifo")
		require.NoError(t, unix.Mkfifo(p, 0o600))
		_, err := testScanner().one(p)
		require.ErrorContains(t, err, "not a regular file")
		require.ErrorContains(t, err, p)
	})
	t.Run("a file open for writing", func(t *testing.T) {
		t.Parallel()
		p := filepath.Join(t.TempDir(), "f")
		f, err := os.Create(p)
		require.NoError(t, err)
		_, err = f.WriteString("x")
		require.NoError(t, err)
		_, err = testScanner().one(p)
		require.ErrorContains(t, err, "open for writing")
		syscall.ForkLock.RLock() // or a server that another test is starting would have it
		require.NoError(t, f.Close())
		syscall.ForkLock.RUnlock()
		_, err = testScanner().one(p)
		require.NoError(t, err)
	})
	t.Run("what is on a p2pfs mount", func(t *testing.T) {
		t.Parallel()
		p := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(p, []byte("x"), 0o600))
		var st unix.Stat_t
		require.NoError(t, unix.Stat(p, &st))
		s := testScanner()
		s.mounts = map[uint64]string{st.Dev: "/mnt/other"}
		_, err := s.one(p)
		require.ErrorContains(t, err, p+" is on the p2pfs mount at /mnt/other")
	})
	t.Run("what is not there", func(t *testing.T) {
		t.Parallel()
		_, err := testScanner().one(filepath.Join(t.TempDir(), "none"))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

func TestHoles(t *testing.T) {
	t.Parallel()
	const block = 64 << 10
	for _, c := range []struct {
		name string
		size int64
		data []int64 // offsets where one page is written
		want []int   // blocks that are not zero
	}{
		{"all hole", 10 * block, nil, nil},
		{"first and last", 10*block + 5, []int64{0, 10 * block}, []int{0, 10}},
		{"one in the middle", 10 * block, []int64{5*block + 8192}, []int{5}},
		{"short tail is hole", 3*block + 1, []int64{block}, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			require.NoError(t, err)
			defer f.Close()
			require.NoError(t, f.Truncate(c.size))
			for _, off := range c.data {
				_, err := f.WriteAt(make([]byte, min(4096, c.size-off)), off)
				require.NoError(t, err)
			}
			o := chunk.Object{ID: chunk.NewObjectID(), Size: c.size, ChunkSize: block, BlockSize: block}
			require.NoError(t, o.Validate())
			zero, err := holes(f, o)
			require.NoError(t, err)
			var data []int
			for i := range o.Blocks() {
				if !zero.Has(i) {
					data = append(data, i)
				}
			}
			require.Equal(t, c.want, data)
		})
	}
}

// A caller that is not root gets no more than its own rights from a daemon
// that is.
func TestCallerRights(t *testing.T) {
	t.Parallel()
	require.Zero(t, os.Geteuid(), "this test takes on another user's rights and needs root")
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	for p := filepath.Dir(dir); p != "/"; p = filepath.Dir(p) {
		st, err := os.Stat(p)
		require.NoError(t, err)
		if st.Mode().Perm()&0o001 == 0 {
			require.NoError(t, os.Chmod(p, st.Mode().Perm()|0o011))
		}
	}
	secret, group := filepath.Join(dir, "secret"), filepath.Join(dir, "group")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(group, []byte("x"), 0o640))
	require.NoError(t, os.Chown(group, 0, 4242))

	nobody := caller{uid: 65534, gid: 65534}
	err := nobody.do(func() error { _, err := testScanner().one(secret); return err })
	require.ErrorIs(t, err, os.ErrPermission)
	err = nobody.do(func() error { _, err := testScanner().one(group); return err })
	require.ErrorIs(t, err, os.ErrPermission)

	member := caller{uid: 65534, gid: 65534, groups: []int{4242}}
	require.NoError(t, member.do(func() error { _, err := testScanner().one(group); return err }))

	// The rights were one thread's, for as long as it took.
	require.NoError(t, caller{}.do(func() error { _, err := testScanner().one(secret); return err }))
}
