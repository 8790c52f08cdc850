package running

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process tells one process from every other that has or had its pid. The
// zero process is unknown.
type process struct {
	Boot      string `json:"boot"`          // id of the boot it runs in
	Namespace string `json:"pid_namespace"` // that its pid counts in
	Start     uint64 `json:"start"`         // clock ticks after boot
}

// thisProcess returns what identifies the calling process.
func thisProcess() (process, error) {
	p, err := here()
	if err != nil {
		return process{}, err
	}
	start, _, err := startOf(os.Getpid())
	if err != nil {
		return process{}, fmt.Errorf("read the start time of this process: %w", err)
	}
	p.Start = start
	return p, nil
}

// here returns the parts that every process of this namespace shares.
func here() (process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, fmt.Errorf("read the boot id: %w", err)
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return process{}, fmt.Errorf("read the pid namespace: %w", err)
	}
	return process{Boot: strings.TrimSpace(string(boot)), Namespace: ns}, nil
}

// startOf returns the start time of a process in clock ticks after boot, and
// its state letter.
func startOf(pid int) (start uint64, state byte, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	return parseStat(b)
}

// parseStat reads fields 3 (state) and 22 (start time) of /proc/<pid>/stat.
// The name in field 2 may hold spaces and parentheses.
func parseStat(b []byte) (start uint64, state byte, err error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return 0, 0, errors.New("stat line without a process name")
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return 0, 0, fmt.Errorf("stat line of %d fields", len(f)+2)
	}
	start, err = strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("stat line: start time: %w", err)
	}
	return start, f[0][0], nil
}

// Alive reports whether the daemon still runs. Of one in another pid
// namespace (a container) only its socket can tell.
func (i Info) Alive() bool {
	me, err := here()
	if err != nil || i.process.Namespace != me.Namespace {
		return i.process.Boot == me.Boot && listening(i.Socket)
	}
	if i.process.Boot != me.Boot {
		return false
	}
	start, state, err := startOf(i.PID)
	if errors.Is(err, os.ErrNotExist) {
		// /proc may hide other users' processes.
		return errors.Is(unix.Kill(i.PID, 0), unix.EPERM)
	}
	return err != nil || (start == i.process.Start && state != 'Z' && state != 'X')
}

// Stopped reports whether the daemon was stopped by a signal or a debugger.
func (i Info) Stopped() bool {
	_, state, err := startOf(i.PID)
	return err == nil && (state == 'T' || state == 't')
}
