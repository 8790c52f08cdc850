package fs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// mountEntry is one line of /proc/self/mountinfo.
type mountEntry struct {
	dev    string // major:minor
	point  string // where, unescaped
	fstype string
	source string
}

// ours reports whether the entry is a mount of this program.
func (m mountEntry) ours() bool { return m.fstype == "fuse."+typeName }

// readMounts returns the mounts this process sees, in mount order.
func readMounts() ([]mountEntry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the list of mounts: %w", err)
	}
	defer f.Close()
	return parseMounts(f)
}

// parseMounts reads the format of proc_pid_mountinfo(5). Lines it cannot read
// are skipped: a strange mount elsewhere is no reason to refuse ours.
func parseMounts(r io.Reader) ([]mountEntry, error) {
	var all []mountEntry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m, ok := parseMount(lines.Text()); ok {
			all = append(all, m)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the list of mounts: %w", err)
	}
	return all, nil
}

func parseMount(line string) (mountEntry, bool) {
	// id parent major:minor root point options [optional...] - type source super
	before, after, ok := strings.Cut(line, " - ")
	if !ok {
		return mountEntry{}, false
	}
	head, tail := strings.Split(before, " "), strings.Split(after, " ")
	if len(head) < 6 || len(tail) < 2 {
		return mountEntry{}, false
	}
	return mountEntry{
		dev:    head[2],
		point:  unescapeMount(head[4]),
		fstype: unescapeMount(tail[0]),
		source: unescapeMount(tail[1]),
	}, true
}

// unescapeMount undoes the kernel's \ooo for space, tab, newline, backslash
// and '#'.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountAt returns the topmost mount on exactly this path.
func mountAt(mounts []mountEntry, point string) (mountEntry, bool) {
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].point == point {
			return mounts[i], true
		}
	}
	return mountEntry{}, false
}
