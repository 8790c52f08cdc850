package fs

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// notPosix are the cases that cannot pass, and why.
var notPosix = map[string]string{
	"Link":             "there are no hard links",
	"LinkUnlinkRename": "there are no hard links",
	"NlinkZero":        "it makes a hard link",
	// It fails on any local file system.
	"FcntlFlockLocksFile": "it wants the locks of one process to exclude each other",
	"XAttr":               "there are no extended attributes",
	"XAttrLarge":          "there are no extended attributes",
}

// Not parallel: some cases count the descriptors of this process.
func TestPosix(t *testing.T) {
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			if why, ok := notPosix[name]; ok {
				t.Skip(why)
			}
			d := mountFakes(t, writable)
			test(t, d.point)
		})
	}
}
