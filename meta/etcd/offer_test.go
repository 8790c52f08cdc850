package etcd_test

import (
	"testing"

	"github.com/p2pfs/p2pfs/meta/metatest"
)

func TestOffer(t *testing.T) {
	t.Parallel()
	metatest.RunOffer(t, opener(startEmbedded(t)))
}
