package meta_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/local"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// exchanged is a store that becomes another one while it is used.
type exchanged struct{ now atomic.Pointer[memory.Store] }

var _ meta.Slots = (*exchanged)(nil)

func (x *exchanged) Get(ctx context.Context, keys ...meta.Key) ([]meta.Record, error) {
	return x.now.Load().Get(ctx, keys...)
}

func (x *exchanged) List(ctx context.Context, slot meta.Slot, next string, limit int) (meta.Page, error) {
	return x.now.Load().List(ctx, slot, next, limit)
}

func (x *exchanged) Version(ctx context.Context, slot meta.Slot) (uint64, error) {
	return x.now.Load().Version(ctx, slot)
}

func (x *exchanged) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	return x.now.Load().Apply(ctx, slot, conds, sets)
}

func (x *exchanged) Watch(ctx context.Context, slot meta.Slot, since uint64, on func([]meta.Event)) error {
	return x.now.Load().Watch(ctx, slot, since, on)
}

func (x *exchanged) Lease(ctx context.Context, key meta.Key, value []byte, ttl time.Duration, conds []meta.If) (meta.Lease, error) {
	return x.now.Load().Lease(ctx, key, value, ttl, conds)
}

func (x *exchanged) Close() error { return x.now.Load().Close() }

// A store that was emptied, or is another cluster's, is a store out of reach:
// what is known stays, and nothing is said to be absent.
func TestAStoreThatBecameAnother(t *testing.T) {
	t.Parallel()
	empty := func(*testing.T, *memory.Store) {}
	young := func(t *testing.T, s *memory.Store) { metatest.Join(t, meta.NewCatalog(s, meta.Options{})) }
	busy := func(t *testing.T, s *memory.Store) {
		c := meta.NewCatalog(s, meta.Options{})
		metatest.Join(t, c)
		for i := range 20 {
			_, err := c.Link(t.Context(), meta.RootDir, metatest.File(string(rune('a'+i)), 1))
			require.NoError(t, err)
		}
	}
	for name, fill := range map[string]func(*testing.T, *memory.Store){"empty": empty, "young": young, "busy": busy} {
		for _, mode := range []meta.Consistency{meta.ConsistencyOpen, meta.ConsistencyWatch} {
			t.Run(name+" "+string(mode), inBubble(func(t *testing.T) {
				ours, other := memory.New(), memory.New()
				t.Cleanup(func() { _, _ = ours.Close(), other.Close() })
				fill(t, other)
				x := &exchanged{}
				x.now.Store(ours)
				c := meta.NewCatalog(x, meta.Options{})
				metatest.Join(t, c)
				file, err := c.Link(t.Context(), meta.RootDir, metatest.File("file", 1))
				require.NoError(t, err)
				dir, err := c.Mkdir(t.Context(), meta.RootDir, "dir", meta.Attrs{Mode: 0o755})
				require.NoError(t, err)
				for _, n := range []string{"1", "2", "3"} {
					_, err := c.Link(t.Context(), dir.Inode, metatest.File(n, 1))
					require.NoError(t, err)
				}
				var changes atomic.Int32
				table, err := local.Open(t.TempDir(), nil)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, table.Close()) })
				v, err := meta.NewView(meta.ViewConfig{Catalog: c, Local: table, Consistency: mode, Timeout: time.Second, OnChange: func(meta.Change) { changes.Add(1) }})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, v.Close()) })
				for _, d := range []meta.InodeID{meta.RootDir, dir.Inode} {
					_, err = v.List(t.Context(), d)
					require.NoError(t, err)
				}

				for i, d := range []meta.InodeID{meta.RootDir, dir.Inode} { // the watches run
					_, err = c.Link(t.Context(), d, metatest.File("late", 1))
					require.NoError(t, err)
					require.Eventually(t, func() bool { return changes.Load() > int32(i) }, soon, tick)
				}

				x.now.Store(other)
				if mode == meta.ConsistencyWatch { // nobody asks while the watch says nothing
					_, err = v.Confirm(t.Context(), dir.Inode, "1")
					require.NoError(t, err)
				}
				for range 2 {
					e, err := v.Confirm(t.Context(), meta.RootDir, "file")
					require.NoError(t, err)
					require.Equal(t, file.Object, e.Object)
				}
				root, err := v.List(t.Context(), meta.RootDir)
				require.NoError(t, err)
				require.Len(t, root, 3)
				in, err := v.List(t.Context(), dir.Inode)
				require.NoError(t, err)
				require.Len(t, in, 4)
				_, err = v.Confirm(t.Context(), dir.Inode, "nope")
				require.ErrorIs(t, err, meta.ErrUnavailable)
				require.NotErrorIs(t, err, meta.ErrNotFound)
				require.Equal(t, meta.StateDown, v.State().State)
				require.ErrorIs(t, v.State().Err, meta.ErrOtherStore)
				_, err = c.Locate(t.Context(), chunk.NewSetID())
				require.ErrorIs(t, err, meta.ErrOtherStore)
				_, err = c.JoinNode(t.Context(), meta.NodeInfo{Node: chunk.NewNodeID(), Name: "n"}, 0)
				require.ErrorIs(t, err, meta.ErrOtherStore)

				x.now.Store(ours)
				require.Eventually(t, func() bool { return v.State().State == meta.StateUp }, soon, tick)
				_, err = v.Confirm(t.Context(), dir.Inode, "nope")
				require.ErrorIs(t, err, meta.ErrNotFound)
			}))
		}
	}
}
