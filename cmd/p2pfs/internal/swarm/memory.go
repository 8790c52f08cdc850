package swarm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// touchStep is how much memory is touched between two looks at the context.
const touchStep = 64 << 20

// touchMemory writes to n bytes of memory that nothing uses, or to nine tenths
// of it where there is less, and frees it again. A virtual machine may have
// given free memory back to its host, which then backs it page by page as it is
// written: that takes several times the processor time of a copy, and has nothing
// to do with what is measured. Memory freed a moment ago is backed still.
func touchMemory(ctx context.Context, n int64) (err error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return os.NewSyscallError("sysinfo", err)
	}
	free := int64(info.Freeram) * int64(info.Unit)
	n = min(n, free/10*9) / touchStep * touchStep
	if n <= 0 {
		return nil
	}
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", n, err)
	}
	defer func(all []byte) { err = errors.Join(err, unix.Munmap(all)) }(mem)
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // only makes it quicker
	for ; len(mem) > 0 && ctx.Err() == nil; mem = mem[touchStep:] {
		for at := 0; at < touchStep; at += os.Getpagesize() {
			mem[at] = 1
		}
	}
	return context.Cause(ctx)
}
