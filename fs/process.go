package fs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processOf returns the process (thread group) of a thread, 0 when it cannot
// be seen from here.
func processOf(tid uint32) uint32 {
	if tid == 0 || inProcess(tid, tid) {
		return tid
	}
	// The first lines have it: name, umask, state, and then the thread group.
	status, err := readProc("/proc/" + strconv.FormatUint(uint64(tid), 10) + "/status")
	if err != nil {
		return 0
	}
	return parseTgid(status)
}

// parseTgid returns the thread group in /proc/<tid>/status, 0 for none.
func parseTgid(status []byte) uint32 {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 32)
			return uint32(n)
		}
	}
	return 0
}

// inProcess reports whether a thread belongs to a process.
func inProcess(tgid, tid uint32) bool {
	err := unix.Tgkill(int(tgid), int(tid), 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// Bounds of the search for other descriptors of a file.
const (
	// familyMost is how many processes are looked at.
	familyMost = 256
	// A child that was just forked has every descriptor until it executes
	// something else: it is looked at again.
	forkLooks = 10
	forkPause = 5 * time.Millisecond
)

// stillHeld reports whether a process has another descriptor of an inode, or
// one below it, which inherited it.
func stillHeld(ctx context.Context, tgid uint32, ino uint64) bool {
	if hasOpen(tgid, ino) {
		return true
	}
	for look := range forkLooks {
		if look > 0 {
			select {
			case <-ctx.Done():
				return true
			case <-time.After(forkPause):
			}
		}
		if !childHasOpen(tgid, ino) {
			return false
		}
	}
	return true
}

// childHasOpen is hasOpen for the processes below one.
func childHasOpen(tgid uint32, ino uint64) bool {
	family := childrenOf(tgid)
	for i := 0; i < len(family) && i < familyMost; i++ {
		if hasOpen(family[i], ino) {
			return true
		}
		family = append(family, childrenOf(family[i])...)
	}
	return false
}

// childrenOf returns the processes that the threads of a process have started.
func childrenOf(tgid uint32) (children []uint32) {
	dir := "/proc/" + strconv.FormatUint(uint64(tgid), 10) + "/task"
	threads, _ := os.ReadDir(dir)
	for _, thread := range threads {
		list, _ := os.ReadFile(dir + "/" + thread.Name() + "/children")
		for field := range bytes.FieldsSeq(list) {
			if n, err := strconv.ParseUint(string(field), 10, 32); err == nil {
				children = append(children, uint32(n))
			}
		}
	}
	return children
}

// hasOpen reports whether a process has a descriptor of an inode number. A
// descriptor that is being closed is not counted: the kernel has taken it out
// of the table by then. When the process cannot be looked into, it may.
func hasOpen(tgid uint32, ino uint64) bool {
	dir := "/proc/" + strconv.FormatUint(uint64(tgid), 10) + "/fdinfo"
	d, err := os.Open(dir)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil && len(names) == 0 {
		return !errors.Is(err, syscall.ESRCH) && !errors.Is(err, os.ErrNotExist)
	}
	for _, name := range names {
		if infoInode(dir+"/"+name) == ino {
			return true
		}
	}
	return false
}

// infoInode returns the inode number in a /proc/<pid>/fdinfo file, 0 for none.
func infoInode(path string) uint64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if value, ok := bytes.CutPrefix(lines.Bytes(), []byte("ino:")); ok {
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			return n
		}
	}
	return 0
}
