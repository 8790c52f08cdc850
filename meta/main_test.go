package meta_test

import (
	"testing"
	"testing/synctest"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// inBubble returns a test whose time stands still while anybody does something: no
// answer is late because the machine is busy.
func inBubble(fn func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, fn)
	}
}
