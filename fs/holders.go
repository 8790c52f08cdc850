package fs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holdersShown bounds how many processes a message names.
const holdersShown = 8

// holders returns the processes that use something below a mountpoint, as
// "name (pid)". It reads /proc only and never touches the mount.
func holders(point string) []string {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []string
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		dir := filepath.Join("/proc", p.Name())
		if !holds(dir, point) {
			continue
		}
		if len(found) == holdersShown {
			return append(found, "others")
		}
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		found = append(found, fmt.Sprintf("%s (%s)", strings.TrimSpace(string(name)), p.Name()))
	}
	return found
}

// holds reports whether a process works in, has open or has mapped something
// below a mountpoint.
func holds(proc, point string) bool {
	links := []string{filepath.Join(proc, "cwd"), filepath.Join(proc, "root")}
	if fds, err := os.ReadDir(filepath.Join(proc, "fd")); err == nil {
		for _, fd := range fds {
			links = append(links, filepath.Join(proc, "fd", fd.Name()))
		}
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && inside(strings.TrimSuffix(target, " (deleted)"), point) {
			return true
		}
	}
	return hasMapped(proc, point)
}

// hasMapped reports whether a process has mapped a file below a mountpoint.
func hasMapped(proc, point string) bool {
	text, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		// address perms offset dev inode      path
		if i := strings.IndexByte(line, '/'); i >= 0 && inside(strings.TrimSpace(line[i:]), point) {
			return true
		}
	}
	return false
}
