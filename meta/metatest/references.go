package metatest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

func testReferences(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	referenced := func(id chunk.ObjectID, hint meta.Reference) bool {
		yes, err := c.Referenced(t.Context(), id, hint)
		require.NoError(t, err)
		return yes
	}
	e := link(t, c, meta.RootDir, File("a", 1))
	id := e.Object.ID
	hint := meta.Reference{Dir: meta.RootDir, Name: "a"}
	require.True(t, referenced(id, hint))
	require.False(t, referenced(id, meta.Reference{}), "an object of one block has no record of its names")
	require.False(t, referenced(chunk.NewObjectID(), hint), "the name stands for another")

	ref, err := c.AddReference(t.Context(), e.Object, meta.Place{Dir: meta.RootDir, Name: "a"})
	require.NoError(t, err)
	require.True(t, referenced(id, meta.Reference{}))
	newer, err := c.AddReference(t.Context(), e.Object, meta.Place{Dir: meta.RootDir, Name: "a"})
	require.NoError(t, err)
	require.NoError(t, c.RemoveReference(t.Context(), id, ref))
	require.True(t, referenced(id, meta.Reference{}), "it was written anew since")
	require.NoError(t, c.RemoveReference(t.Context(), id, newer))
	require.NoError(t, c.RemoveReference(t.Context(), id, newer))
	require.False(t, referenced(id, meta.Reference{}))
	require.NoError(t, c.RemoveReference(t.Context(), chunk.NewObjectID(), newer))

	many := meta.ObjectRecord{Object: object(3)} // more than one request takes
	for i := range 2 * meta.MaxSets {
		many.References = append(many.References, meta.Reference{Dir: meta.RootDir, Name: fmt.Sprint("n", i)})
	}
	require.NoError(t, c.PutObjects(t.Context(), []meta.ObjectRecord{many}))
	require.False(t, referenced(many.Object.ID, meta.Reference{}))
	last := File(fmt.Sprint("n", 2*meta.MaxSets-1), 0)
	last.Object, last.Size = many.Object, many.Object.Size
	link(t, c, meta.RootDir, last)
	require.True(t, referenced(many.Object.ID, meta.Reference{}))

	// An object that was written for a name that was not to be had gets another.
	again := meta.ObjectRecord{Object: object(2)}
	for _, name := range []string{"taken", "other"} {
		again.References = []meta.Reference{{Dir: meta.RootDir, Name: name}}
		require.NoError(t, c.PutObjects(t.Context(), []meta.ObjectRecord{again}))
	}
	other := File("other", 0)
	other.Object, other.Size = again.Object, again.Object.Size
	link(t, c, meta.RootDir, other)
	require.True(t, referenced(again.Object.ID, meta.Reference{}))

	_, err = c.AddReference(t.Context(), e.Object, meta.Place{Dir: meta.RootDir, Name: "a"})
	require.NoError(t, err)
	require.True(t, referenced(id, meta.Reference{}))
	require.NoError(t, unlink(t, c, meta.RootDir, "a", 0))
	require.False(t, referenced(id, hint))

	require.NoError(t, c.DeleteObject(t.Context(), id))
	_, err = c.Object(t.Context(), id)
	require.ErrorIs(t, err, meta.ErrNotFound)
	require.False(t, referenced(id, hint))
}

// testReferRace: an object that always has a name is never found without,
// though the name changes all the time.
func testReferRace(t *testing.T, c *meta.Catalog) {
	Join(t, c)
	other := mkdir(t, c, meta.RootDir, "d").Inode
	e := link(t, c, meta.RootDir, File("0", 1))
	const moves = 20
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		from := meta.Place{Dir: meta.RootDir, Name: "0"}
		for i := 1; i <= moves; i++ {
			to := meta.Place{Dir: meta.RootDir, Name: fmt.Sprint(i % 3)}
			if i%2 == 0 {
				to.Dir = other
			}
			if _, err := c.Rename(t.Context(), from, to, meta.RenameOptions{NoReplace: true}); err != nil {
				t.Error(err)
				return
			}
			from = to
		}
	})
	asked := 0
	for going := true; going; asked++ {
		select {
		case <-done:
			going = false
		default:
		}
		yes, err := c.Referenced(t.Context(), e.Object.ID, meta.Reference{Dir: meta.RootDir, Name: "0"})
		require.NoError(t, err)
		require.True(t, yes)
	}
	wg.Wait()
	t.Log("asked", asked, "times")
	r, err := c.Object(t.Context(), e.Object.ID)
	require.NoError(t, err)
	require.Len(t, r.References, 1)
}

// testPutSums: the sums of a published object come with its record.
func testPutSums(t *testing.T, c *meta.Catalog) {
	o := object(meta.GroupBlocks + 100)
	o.Sparse = true
	sums := make([]uint32, o.Blocks())
	for i := range sums {
		sums[i] = uint32(i) * 2654435761
	}
	zeros := chunk.NewBitmap(o.Blocks())
	zeros.Set(5)
	zeros.Set(o.Blocks() - 1)
	require.NoError(t, c.PutObjects(t.Context(), []meta.ObjectRecord{{Object: o, Sums: sums, Zeros: zeros}}))
	for g := range 2 {
		got, err := c.SumGroup(t.Context(), o, g)
		require.NoError(t, err)
		require.True(t, got.Known.Full())
		require.Equal(t, sums[g*meta.GroupBlocks:][:len(got.Sums)], got.Sums)
	}
	z, err := c.Zeros(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, zeros, z)
	require.NoError(t, c.BindSums(t.Context(), o, map[int]uint32{7: sums[7]}))
	require.ErrorIs(t, c.BindSums(t.Context(), o, map[int]uint32{7: 1}), chunk.ErrDamaged)
	require.Error(t, c.PutObjects(t.Context(), []meta.ObjectRecord{{Object: object(9), Sums: sums}}))
}
