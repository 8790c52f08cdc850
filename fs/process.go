package fs

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// processOf returns the process (thread group) of a thread, 0 when it cannot
// be seen from here.
func processOf(tid uint32) uint32 {
	if tid == 0 || inProcess(tid, tid) {
		return tid
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(tid), 10) + "/status")
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
