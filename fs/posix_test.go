package fs

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"github.com/stretchr/testify/require"
)

// notPosix are the cases that cannot pass, and why.
var notPosix = map[string]string{
	"Link":             "there are no hard links",
	"LinkUnlinkRename": "there are no hard links",
	"NlinkZero":        "it makes a hard link",
	// It fails on any local file system.
	"FcntlFlockLocksFile": "it wants the locks of one process to exclude each other",
	"Tmpfile":             "there is no O_TMPFILE",
}

// Not parallel: some cases count the descriptors of this process.
func TestPosix(t *testing.T) {
	for name := range notPosix {
		require.Contains(t, posixtest.All, name, "no such case")
	}
	for name, test := range posixtest.All {
		if _, cannot := notPosix[name]; cannot {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := mountFakes(t, writable, withXAttrs)
			test(t, d.point)
		})
	}
}
