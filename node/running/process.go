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
	st, err := statOf(os.Getpid())
	if err != nil {
		return process{}, fmt.Errorf("read the start time of this process: %w", err)
	}
	p.Start = st.start
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

// procStat is what is read of /proc/<pid>/stat.
type procStat struct {
	start   uint64 // clock ticks after boot
	state   byte   // of the first thread
	threads int    // that have not ended
}

// ended reports whether all of the process has. Its first thread may end
// before others, which still hold locks and sockets.
func (s procStat) ended() bool {
	return s.state == 'X' || s.state == 'Z' && s.threads <= 1
}

func statOf(pid int) (procStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

// parseStat reads fields 3 (state), 20 (threads) and 22 (start time) of
// /proc/<pid>/stat. The name in field 2 may hold spaces and parentheses.
func parseStat(b []byte) (procStat, error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return procStat{}, errors.New("stat line without a process name")
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return procStat{}, fmt.Errorf("stat line of %d fields", len(f)+2)
	}
	threads, err := strconv.Atoi(string(f[17]))
	if err != nil {
		return procStat{}, fmt.Errorf("stat line: threads: %w", err)
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("stat line: start time: %w", err)
	}
	return procStat{start: start, state: f[0][0], threads: threads}, nil
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
	st, err := statOf(i.PID)
	if errors.Is(err, os.ErrNotExist) {
		// /proc may hide other users' processes.
		return errors.Is(unix.Kill(i.PID, 0), unix.EPERM)
	}
	return err != nil || (st.start == i.process.Start && !st.ended())
}

// Stopped reports whether the daemon was stopped by a signal or a debugger.
func (i Info) Stopped() bool {
	st, err := statOf(i.PID)
	return err == nil && (st.state == 'T' || st.state == 't')
}
