package integration

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The stopper is a child process that watches the system calls of a daemon and
// kills a process just before the n-th of those that leave a trace: what is
// written to a file, a socket or the kernel, made durable or named. Killed at
// every n in turn, a program has been killed at every step it takes; that
// needs no help from the program.

// ptrace numbers that package unix lacks.
const (
	ptraceListen         = 0x4208
	ptraceGetSyscallInfo = 0x420e
	ptraceEventStop      = 128
	syscallInfoEntry     = 1
	ficlone              = 0x40049409
	ficloneRange         = 0x4020940d
)

// syscallInfo is struct ptrace_syscall_info of an entry.
type syscallInfo struct {
	Op     uint8
	_      [3]uint8
	Arch   uint32
	IP, SP uint64
	Nr     uint64
	Args   [6]uint64
	_      [4]uint64
}

// changing are the calls that change something outside the process, and which
// argument is the file, -1 if there is none.
var changing = map[uint64]struct {
	name string
	fd   int
}{
	unix.SYS_WRITE: {"write", 0}, unix.SYS_WRITEV: {"writev", 0}, unix.SYS_PWRITE64: {"pwrite", 0}, unix.SYS_PWRITEV: {"pwritev", 0},
	unix.SYS_SENDTO: {"send", 0}, unix.SYS_SENDMSG: {"sendmsg", 0}, unix.SYS_SENDFILE: {"sendfile", 0}, unix.SYS_SPLICE: {"splice", 2},
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", 2}, unix.SYS_FTRUNCATE: {"ftruncate", 0}, unix.SYS_FALLOCATE: {"fallocate", 0},
	unix.SYS_FSYNC: {"fsync", 0}, unix.SYS_FDATASYNC: {"fdatasync", 0}, unix.SYS_SYNC_FILE_RANGE: {"sync_file_range", 0}, unix.SYS_IOCTL: {"ioctl", 0},
	unix.SYS_RENAME: {"rename", -1}, unix.SYS_RENAMEAT: {"renameat", -1}, unix.SYS_RENAMEAT2: {"renameat2", -1},
	unix.SYS_UNLINK: {"unlink", -1}, unix.SYS_UNLINKAT: {"unlinkat", -1}, unix.SYS_LINKAT: {"linkat", -1},
	unix.SYS_MKDIRAT: {"mkdirat", -1}, unix.SYS_FCHMOD: {"fchmod", 0},
}

// stopper is one run: it prints a line for each call seen.
type stopper struct {
	pid, victim, at int
	seen            int
	known           map[int]bool
}

// stopperMain is the child: PID VICTIM N. With N 0 it only counts.
func stopperMain(args []string) error {
	var n [3]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(args[i]); err != nil {
			return err
		}
	}
	runtime.LockOSThread() // the tracer is a thread
	s := &stopper{pid: n[0], victim: n[1], at: n[2], known: map[int]bool{}}
	if err := s.attach(); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	fmt.Println("attached")
	return s.run()
}

// attach takes all threads, those that are made meanwhile included.
func (s *stopper) attach() error {
	for {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.pid))
		if err != nil {
			return err
		}
		fresh := 0
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || s.known[tid] {
				continue
			}
			if err := ptrace(unix.PTRACE_SEIZE, tid, 0, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE); err != nil {
				if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EPERM) { // it ended, or came to us by its maker
					continue
				}
				return err
			}
			s.known[tid] = true
			fresh++
			if err := ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if fresh == 0 {
			return nil
		}
	}
}

func ptrace(request, tid int, addr, data uintptr) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// run goes on until the process is gone, or the victim was killed.
func (s *stopper) run() error {
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return err
		case !ws.Stopped():
			if tid == s.pid {
				return nil
			}
			continue
		}
		done, err := s.stopped(tid, ws)
		if done || err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
}

func (s *stopper) stopped(tid int, ws unix.WaitStatus) (done bool, err error) {
	event, sig := int(ws)>>16, ws.StopSignal()
	switch {
	case sig == unix.SIGTRAP|0x80:
		var info syscallInfo
		if err := ptrace(ptraceGetSyscallInfo, tid, unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info))); err != nil {
			return false, err
		}
		if info.Op == syscallInfoEntry && s.counts(tid, &info) && s.seen == s.at {
			s.kill()
			if s.victim == s.pid {
				return true, nil
			}
		}
	case event == ptraceEventStop && sig != unix.SIGTRAP: // stopped as a group
		return false, ptrace(ptraceListen, tid, 0, 0)
	case event == 0: // a signal on its way
		return false, ptrace(unix.PTRACE_SYSCALL, tid, 0, uintptr(sig))
	}
	return false, ptrace(unix.PTRACE_SYSCALL, tid, 0, 0)
}

// counts reports whether a call is one that changes something, and says so.
func (s *stopper) counts(tid int, info *syscallInfo) bool {
	call, ok := changing[info.Nr]
	if !ok {
		return false
	}
	what := ""
	if call.fd >= 0 {
		what, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", s.pid, int32(info.Args[call.fd])))
		switch {
		case info.Nr == unix.SYS_IOCTL && info.Args[1] != ficlone && info.Args[1] != ficloneRange,
			strings.HasPrefix(what, "anon_inode:"), strings.HasPrefix(what, "pipe:"), // wakes the process's own threads
			filepath.Base(what) == "log": // and what it says
			return false
		}
	}
	s.seen++
	fmt.Printf("%d %s %s\n", s.seen, call.name, what)
	return true
}

// kill ends the victim and waits until it is dead.
func (s *stopper) kill() {
	fmt.Println("kill")
	_ = unix.Kill(s.victim, unix.SIGKILL)
	if s.victim == s.pid {
		return
	}
	for range 2000 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.victim))
		if err != nil {
			return
		}
		if _, rest, ok := strings.Cut(string(b), ") "); ok && (rest[0] == 'Z' || rest[0] == 'X') {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// writerMain is the child whose publish is disturbed: PATH HOW SIZE SEED. It
// waits for a line, then writes, and says what close said.
func writerMain(args []string) error {
	size, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	flags := map[string]int{"new": os.O_WRONLY | os.O_CREATE | os.O_EXCL, "over": os.O_WRONLY | os.O_CREATE | os.O_TRUNC, "append": os.O_WRONLY | os.O_APPEND}[args[1]]
	f, err := os.OpenFile(args[0], flags, 0o644)
	if err != nil {
		fmt.Println("open:", err)
		return nil
	}
	data := make([]byte, size)
	if _, err := randomBytes(seed).Read(data); err != nil {
		return err
	}
	for len(data) > 0 {
		part := data[:min(32<<10, len(data))]
		if _, err := f.Write(part); err != nil {
			fmt.Println("write:", err)
			break
		}
		data = data[len(part):]
	}
	if len(data) == 0 {
		fmt.Println("written")
	}
	if err := f.Close(); err != nil {
		fmt.Println("close:", err)
		return nil
	}
	if len(data) == 0 {
		fmt.Println("closed")
	}
	return nil
}
