package memory_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/memory"
	"github.com/p2pfs/p2pfs/meta/metatest"
)

// TestLinearizable: N1, N3, W4, W7, W8
func TestLinearizable(t *testing.T) {
	t.Parallel()
	stores := map[string]*memory.Store{}
	var lossy atomic.Bool
	open := func(_ *testing.T, prefix string, client int) meta.Slots {
		if client == 0 {
			stores[prefix] = memory.New()
		}
		return metatest.Lossy{Slots: stores[prefix].Another(), On: &lossy}
	}
	metatest.Linearizable(t, 10, open,
		metatest.NoFault,
		metatest.Fault{Name: "lossy", Begin: func() { lossy.Store(true) }, End: func() { lossy.Store(false) }, For: 3 * time.Millisecond},
	)
}
