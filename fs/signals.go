package fs

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sigset has bit n-1 set for signal n, as /proc shows it.
type sigset uint64

// has reports whether signal n is in the set.
func (s sigset) has(n syscall.Signal) bool { return s&(1<<(n-1)) != 0 }

// harmless are the signals whose default action does not end a process.
var harmless = setOf(syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGSTOP, syscall.SIGTSTP,
	syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGURG, syscall.SIGWINCH)

func setOf(signals ...syscall.Signal) (s sigset) {
	for _, n := range signals {
		s |= 1 << (n - 1)
	}
	return s
}

// signalState is what /proc/<tid>/status says of a thread's signals.
type signalState struct {
	state                                     byte // R, S, D, Z, X...
	pending, shared, blocked, ignored, caught sigset
}

// parseSignals reads the lines of /proc/<tid>/status. Lines it does not know
// are skipped; a set that is missing is empty.
func parseSignals(status []byte) (s signalState) {
	for line := range bytes.Lines(status) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		value = bytes.TrimSpace(value)
		switch string(key) {
		case "State":
			if len(value) > 0 {
				s.state = value[0]
			}
		case "SigPnd":
			s.pending = parseSet(value)
		case "ShdPnd":
			s.shared = parseSet(value)
		case "SigBlk":
			s.blocked = parseSet(value)
		case "SigIgn":
			s.ignored = parseSet(value)
		case "SigCgt":
			s.caught = parseSet(value)
		}
	}
	return s
}

func parseSet(hex []byte) sigset {
	n, _ := strconv.ParseUint(string(hex), 16, 64)
	return sigset(n)
}

// dying reports whether a pending signal will end the thread as soon as it
// leaves the kernel, or it has ended already.
func (s signalState) dying() bool {
	if s.state == 'Z' || s.state == 'X' {
		return true
	}
	pending := s.pending | s.shared
	if pending.has(syscall.SIGKILL) {
		return true
	}
	return pending&^(s.blocked|s.ignored|s.caught|harmless) != 0
}

// fatalPending reports whether a thread is about to die or is gone. A thread
// that cannot be seen from this PID namespace (0) counts as alive: its request
// then waits for its own bound.
func fatalPending(tid uint32) bool {
	if tid == 0 {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(tid), 10) + "/status")
	switch {
	case err == nil:
		return parseSignals(status).dying()
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		// Not there to be seen may also mean hidden from us.
		return errors.Is(unix.Kill(int(tid), 0), syscall.ESRCH)
	}
	return false
}
