package node

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
)

// slowWithdraw is a store in which the removal of a record takes as long as it is
// told to, once it is told to.
type slowWithdraw struct {
	meta.Slots
	slow    atomic.Bool
	begun   chan struct{}
	proceed chan struct{}
}

func (s *slowWithdraw) Apply(ctx context.Context, slot meta.Slot, conds []meta.If, sets []meta.Set) (uint64, error) {
	if len(sets) == 1 && sets[0].Value == nil && s.slow.Load() {
		s.begun <- struct{}{}
		<-s.proceed
	}
	return s.Slots.Apply(ctx, slot, conds, sets)
}

// A set that is announced while its record is being taken back is announced
// afterwards.
func TestAnnounceDuringAWithdrawal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slots := &slowWithdraw{Slots: memory.New(), begun: make(chan struct{}), proceed: make(chan struct{})}
		defer slots.Close()
		catalog := meta.NewCatalog(slots, meta.Options{})
		_, err := catalog.Join(t.Context(), meta.JoinOptions{Create: true})
		require.NoError(t, err)
		self, set := chunk.NewNodeID(), chunk.NewSetID()
		r := &registry{
			catalog: catalog, self: self, timeout: time.Minute,
			recent: map[chunk.SetID]located{}, told: map[chunk.SetID]bool{},
		}
		require.NoError(t, r.Announce(t.Context(), set, true))
		slots.slow.Store(true)
		withdrawn, announced := make(chan error, 1), make(chan error, 1)
		go func() { withdrawn <- r.withdraw(t.Context(), set) }()
		<-slots.begun
		go func() { announced <- r.Announce(t.Context(), set, true) }()
		synctest.Wait() // it waits, or thinks that it is done
		close(slots.proceed)
		require.NoError(t, <-withdrawn)
		require.NoError(t, <-announced)
		requireProvider(t, catalog, set, self, true)
	})
}

func requireProvider(t *testing.T, catalog *meta.Catalog, set chunk.SetID, node chunk.NodeID, want bool) {
	t.Helper()
	ps, err := catalog.Providers(t.Context(), set)
	require.NoError(t, err)
	found := false
	for _, p := range ps {
		found = found || p.Node == node
	}
	require.Equal(t, want, found)
}

// The record of a set is taken back with the last of it, and given again if
// something came between the decision and the request.
func TestASetThatComesBackDuringAWithdrawalIsAnnounced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		again bool // something of the set comes
		keep  bool // and is kept
	}{
		{name: "nothing came"},
		{name: "fetched", again: true},
		{name: "kept", again: true, keep: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t)
			begun, proceed := make(chan struct{}), make(chan struct{})
			c, err := cache.Open(cache.Config{
				Roots: []string{t.TempDir()}, FreeSpace: cache.Reserve{Bytes: -1},
				Withdraw: func(ctx context.Context, set chunk.SetID) error {
					close(begun)
					<-proceed
					return k.withdraw(context.WithoutCancel(ctx), set)
				},
				Withdrawn: func(ctx context.Context, set chunk.SetID) error {
					return k.withdrawn(context.WithoutCancel(ctx), set)
				},
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			k.cache, k.registry.timeout = c, time.Minute
			o := chunk.Object{ID: chunk.NewObjectID(), Set: chunk.NewSetID(), Size: 4096, ChunkSize: 4 * 4096, BlockSize: 4096}
			k.fetch(o)

			dropped := make(chan error, 1)
			go func() {
				_, err := c.Drop(t.Context(), o.ID)
				dropped <- err
			}()
			<-begun
			if tt.again {
				sibling := o
				sibling.ID = chunk.NewObjectID()
				k.fetch(sibling)
				if tt.keep {
					require.NoError(t, ownHoldings{k.Node}.Keep(t.Context(), sibling.ID, o.Set, o.Size))
				}
			}
			close(proceed)
			require.NoError(t, <-dropped)
			requireProvider(t, k.catalog, o.Set, k.id, tt.again)
			ps, err := k.catalog.Providers(t.Context(), o.Set)
			require.NoError(t, err)
			for _, p := range ps {
				require.True(t, p.Complete)
				require.Equal(t, tt.keep, p.Keeper)
			}
		})
	}
}

// fetch brings an object here, as the engine does.
func (k *keeper) fetch(o chunk.Object) {
	k.t.Helper()
	f, err := k.cache.Open(k.t.Context(), o)
	require.NoError(k.t, err)
	data := make([]byte, o.Size)
	data[0] = 1
	require.NoError(k.t, f.Put(0, data, chunk.Sum(data)))
	require.NoError(k.t, f.Close())
	require.NoError(k.t, k.registry.Announce(k.t.Context(), o.Set, true))
}
