package cache

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func storedNote(t *testing.T, c *Cache) []byte {
	t.Helper()
	files, err := c.StagedFiles()
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0].Note
}

// The last whole note counts, however many there were and whatever a death left
// behind it, also in a file that is opened again.
func TestNotes(t *testing.T) {
	t.Parallel()
	c := openCache(t, config(t))
	s, err := c.Stage(t.Context(), 7, bs, nil)
	require.NoError(t, err)
	path := s.r.stagedPath(7, ".note")
	long := bytes.Repeat([]byte("x"), MaxNote)
	for i, note := range [][]byte{[]byte("a"), {}, []byte("b"), long, long, []byte("c"), long, []byte("d")} {
		require.NoError(t, s.SetNote(note, i%3 == 1))
		require.Equal(t, note, storedNote(t, c))
		st, err := os.Stat(path)
		require.NoError(t, err)
		require.LessOrEqual(t, st.Size(), int64(noteLog))
	}
	torn := encodeNote(7, []byte("torn"))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.Write(torn[:len(torn)-1])
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, []byte("d"), storedNote(t, c))
	require.NoError(t, s.Close())

	s, err = c.OpenStaged(7, bs, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.SetNote([]byte("e"), true))
	require.Equal(t, []byte("e"), storedNote(t, c))
	require.NoError(t, s.Discard())
	require.NoFileExists(t, path)
}

// The map of a small object is in the file of its notes, that of a larger one
// is not; a note can still be set when it is an object, and both outlive the
// process.
func TestNotesAndMap(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		blocks int64
		links  uint64
	}{{"small", groupBlocks, 2}, {"large", groupBlocks + 1, 1}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			c := openCache(t, cfg)
			want := wholeContent(object(tc.blocks * bs))
			s, err := c.Stage(t.Context(), 7, bs, nil)
			require.NoError(t, err)
			require.NoError(t, s.WriteAt(t.Context(), want, 0))
			require.NoError(t, s.SetNote([]byte("before"), false))
			sealed, err := s.Publish(t.Context(), cut())
			require.NoError(t, err)
			var st unix.Stat_t
			require.NoError(t, unix.Lstat(s.r.path(sealed.Object.ID, ".map"), &st))
			require.Equal(t, tc.links, uint64(st.Nlink))
			require.NoError(t, s.SetNote([]byte("after"), true))
			require.NoError(t, s.Close())
			require.NoError(t, c.Close())

			c = openCache(t, cfg)
			requireObject(t, c, sealed.Object, want)
			require.Equal(t, []byte("after"), storedNote(t, c))
			require.NoError(t, c.DiscardStaged(7))
			requireObject(t, c, sealed.Object, want)
			require.NoError(t, c.Close())
			requireObject(t, openCache(t, cfg), sealed.Object, want)
		})
	}
}

// A note is also replaced while its file is not open: of bytes, and of what is
// left when they are an object, whose map stays as it is.
func TestNoteOfAClosedFile(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"bytes": 0, "small object": bs / 2, "large object": 3 * bs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			c := openCache(t, cfg)
			s, err := c.Stage(t.Context(), 7, bs, nil)
			require.NoError(t, err)
			require.NoError(t, s.SetNote([]byte("a"), true))
			var sealed Sealed
			want := bytes.Repeat([]byte("x"), max(size, 5))
			require.NoError(t, s.WriteAt(t.Context(), want, 0))
			if size > 0 {
				sealed, err = s.Publish(t.Context(), cut())
				require.NoError(t, err)
			}
			require.Error(t, c.NoteStaged(7, []byte("b"), true), "it is open")
			require.NoError(t, s.Close())
			require.NoError(t, c.NoteStaged(7, []byte("b"), true))
			require.NoError(t, c.NoteStaged(7, []byte("c"), false))
			require.Equal(t, []byte("c"), storedNote(t, c))
			require.NoError(t, c.Close())

			c = openCache(t, cfg)
			require.Equal(t, []byte("c"), storedNote(t, c))
			require.NoError(t, c.NoteStaged(7, []byte("d"), true))
			require.Equal(t, []byte("d"), storedNote(t, c))
			if size > 0 {
				requireObject(t, c, sealed.Object, want)
			} else {
				s, err = c.OpenStaged(7, bs, nil)
				require.NoError(t, err)
				require.Equal(t, want, readStaged(t, s))
				require.NoError(t, s.Close())
			}
			require.NoError(t, c.DiscardStaged(7))
			require.Error(t, c.NoteStaged(7, []byte("e"), true))
		})
	}
}
