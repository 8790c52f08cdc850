package swarm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// cpuTime is what all processors did since the machine started, in ticks.
type cpuTime struct{ idle, all uint64 }

func readCPU() (cpuTime, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTime{}, err
	}
	t, err := parseCPU(b)
	if err != nil {
		return cpuTime{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	return t, nil
}

// parseCPU reads the first line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq, steal. Waiting for a disk is idle; guests are in user.
func parseCPU(b []byte) (cpuTime, error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := bytes.Fields(line)
	if len(f) < 9 || string(f[0]) != "cpu" {
		return cpuTime{}, errors.New("it does not begin with the times of all processors")
	}
	var t cpuTime
	for i, word := range f[1:9] {
		n, err := strconv.ParseUint(string(word), 10, 64)
		if err != nil {
			return cpuTime{}, err
		}
		t.all += n
		if i == 3 || i == 4 {
			t.idle += n
		}
	}
	return t, nil
}

// tick is the unit of /proc in seconds: the kernel shows programs 100 a second
// on every machine that Go runs on.
const tick = 1.0 / 100

// processSeconds returns the processor time that a process has taken.
func processSeconds(pid int) (float64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The name in brackets may hold anything; what follows has no brackets.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("read the times of process %d: %d fields", pid, len(f))
	}
	var sum float64
	for _, word := range f[11:13] {
		n, err := strconv.ParseUint(string(word), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the times of process %d: %w", pid, err)
		}
		sum += float64(n) * tick
	}
	return sum, nil
}

// idleSince returns the part of all processors that was idle since t.
func (t cpuTime) idleSince(before cpuTime) float64 {
	if t.all <= before.all {
		return 0
	}
	return float64(t.idle-min(before.idle, t.idle)) / float64(t.all-before.all)
}
