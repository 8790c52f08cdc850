package fs

import (
	"fmt"
	"os"
	"testing"

	"github.com/p2pfs/p2pfs/chunk/leaktest"
)

// The test binary is also the daemon that mounts and the process that reads,
// because a process must never use a mount it serves.
const roleVariable = "P2PFS_FS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		leaktest.Main(m)
	case "daemon":
		exit(runDaemon())
	case "reader":
		exit(runReader())
	case "rewriter":
		exit(runRewriter())
	default:
		exit(fmt.Errorf("unknown role"))
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
