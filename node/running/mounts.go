package running

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// FSType is the type of every mount of ours, as /proc/self/mountinfo and
// mount(8) show it.
const FSType = "fuse.p2pfs"

// Mount is one p2pfs mount as the kernel lists it, alive or dead.
type Mount struct {
	Point  string // absolute
	Root   string // what of the file system is shown here; "/" unless a bind mount
	Device string // MAJOR:MINOR; the minor number is that of the FUSE connection
	Source string
}

// Mounts returns the p2pfs mounts this process can see, in mount order. It
// asks the kernel, never a mount.
func Mounts() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	m, err := parseMounts(f)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return m, nil
}

// parseMounts reads mountinfo (proc_pid_mountinfo(5)) and keeps our mounts.
func parseMounts(r io.Reader) ([]Mount, error) {
	var all []Mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// Fields before the lone "-" vary in number, those after do not.
		head, tail, ok := bytes.Cut(lines.Bytes(), []byte(" - "))
		h, t := bytes.Fields(head), bytes.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 2 || string(t[0]) != FSType {
			continue
		}
		all = append(all, Mount{
			Device: string(h[2]), Root: unescape(h[3]), Point: unescape(h[4]), Source: unescape(t[1]),
		})
	}
	return all, lines.Err()
}

// unescape undoes the kernel's octal escapes of blank, tab, newline, backslash
// and #.
func unescape(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	var s strings.Builder
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+3 < len(b) {
			if n, err := strconv.ParseUint(string(b[i+1:i+4]), 8, 8); err == nil {
				s.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		s.WriteByte(b[i])
	}
	return s.String()
}
