package memory_test

import (
	"testing"

	"github.com/p2pfs/p2pfs/meta/metatest"
)

func TestOffer(t *testing.T) { metatest.RunOffer(t, open) }
