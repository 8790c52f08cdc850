package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// openFiles returns how many files this process may have open: the hard limit,
// since programs in Go raise the other to it when they start.
func openFiles() (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return l.Max, nil
}
