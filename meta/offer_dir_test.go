package meta_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// intervening is a store in which something happens right before the n-th
// change of a slot.
type intervening struct {
	meta.Slots
	slot meta.Slot
	n    int
	do   func()
}

func (s *intervening) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	if slot == s.slot {
		if s.n--; s.n == 0 {
			s.do()
		}
	}
	return s.Slots.Apply(ctx, slot, conds, sets)
}

// Of two nodes that bring one directory back, the one that moved it takes the
// other's name away, whenever that comes: the directory's own record then names
// the directory that it was moved into.
func TestAMovedDirectoryKnowsItsParent(t *testing.T) {
	t.Parallel()
	first := memory.New()
	info := metatest.Join(t, meta.NewCatalog(first, meta.Options{}))
	for n := 1; n <= 3; n++ {
		for _, placed := range []bool{false, true} { // by who moved it, before the other begins
			s := memory.New()
			mover := meta.NewCatalog(s, meta.Options{})
			now, err := mover.Restore(t.Context(), info)
			require.NoError(t, err)
			mover.UseStore(now)
			to, err := mover.Mkdir(t.Context(), meta.RootDir, "to", meta.Attrs{Mode: 0o755})
			require.NoError(t, err)
			from, err := mover.Mkdir(t.Context(), meta.RootDir, "from", meta.Attrs{Mode: 0o755})
			require.NoError(t, err)
			x := meta.Entry{Name: "x", Kind: meta.KindDir, Inode: meta.NewInodeID(), Mode: 0o755}
			offer := func(c *meta.Catalog, dir meta.InodeID, name string, version uint64) {
				x := x
				x.Name = name
				_, _, err := c.OfferDir(t.Context(), dir, meta.Offer{Name: name, Entry: x, Origin: meta.Origin{Epoch: info.Epoch, Version: version}}, meta.DirInfo{Mode: 0o755})
				require.NoError(t, err)
			}
			move := func() {
				offer(mover, to.Inode, "y", 9)
				gone := meta.Offer{Name: "x", Gone: true, Origin: meta.Origin{Epoch: info.Epoch, Version: 9}}
				_, err := mover.Offer(t.Context(), from.Inode, []meta.Offer{gone})
				require.NoError(t, err)
				offer(mover, to.Inode, "y", 9) // the second pass
			}
			if placed {
				offer(mover, to.Inode, "y", 9)
			}
			slots := &intervening{Slots: s.Another(), slot: meta.Slot(fmt.Sprintf("d/%016x", uint64(x.Inode))), n: n, do: move}
			maker := meta.NewCatalog(slots, meta.Options{})
			maker.UseStore(now)
			offer(maker, from.Inode, "x", 3)
			if slots.n > 0 { // it made fewer changes
				move()
			}
			d, err := mover.Dir(t.Context(), x.Inode)
			require.NoError(t, err)
			require.Equal(t, to.Inode, d.Parent, "before change %d, placed %v", n, placed)
			_, err = mover.Lookup(t.Context(), from.Inode, "x")
			require.ErrorIs(t, err, meta.ErrNotFound)
		}
	}
}
