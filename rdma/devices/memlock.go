package devices

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Unlimited is a limit that is none.
const Unlimited = math.MaxUint64

const (
	rlimitMemlock = 8  // the kernel's number; package syscall has no name for it
	capIPCLock    = 14 // processes with it may lock any amount of memory
)

// Memlock returns how many bytes this process may lock, as registering memory
// does; Unlimited if there is no limit, or none that counts for it.
func Memlock() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(rlimitMemlock, &l); err != nil {
		return 0, fmt.Errorf("read the limit of locked memory: %w", err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err == nil && mayLockAll(string(status)) {
		return Unlimited, nil
	}
	return l.Cur, nil
}

// mayLockAll reads a process's status for the capability that lifts the limit.
func mayLockAll(status string) bool {
	_, rest, found := strings.Cut(status, "\nCapEff:")
	if !found {
		return false
	}
	digits, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 64)
	return err == nil && caps>>capIPCLock&1 == 1
}

// CheckMemlock says whether need bytes can be registered under a limit.
func CheckMemlock(limit, need uint64) (_ Problem, ok bool) {
	if limit >= need {
		return Problem{}, false
	}
	return Problem{
		SmallMemlock, "", fmt.Sprintf("only %d bytes may be locked in memory, and RDMA needs %d", limit, need),
		"raise the limit (ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container), or give a smaller --rdma-memory", true,
	}, true
}
