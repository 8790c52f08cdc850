package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(*testing.T) meta.Slots { return memory.New() }

func TestSlots(t *testing.T) { metatest.Run(t, open) }

func TestAnother(t *testing.T) {
	t.Parallel()
	a := memory.New()
	b := a.Another()
	_, err := a.Apply(t.Context(), "s/1", nil, []meta.Set{{Field: "x", Value: []byte("1")}})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	recs, err := b.Get(t.Context(), meta.Key{Slot: "s/1", Field: "x"})
	require.NoError(t, err)
	require.Equal(t, []byte("1"), recs[0].Value)
	require.NoError(t, b.Close())
}

func TestCatalog(t *testing.T) { metatest.RunCatalog(t, open) }

func TestStorms(t *testing.T) { metatest.RunStorms(t, open, 20) }
