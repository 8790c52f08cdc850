package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holdersNamed is how many processes a message names at most.
const holdersNamed = 8

// holders returns the processes that use a mount, as "name (pid)". It reads
// links in /proc and never the mount.
func holders(point string) []string {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []string
	for _, p := range procs {
		if !holds(p, point) {
			continue
		}
		if len(found) == holdersNamed {
			return append(found, "others")
		}
		name, _ := os.ReadFile(p + "/comm") // may have ended meanwhile
		pid, _ := strconv.Atoi(filepath.Base(p))
		found = append(found, fmt.Sprintf("%s (%d)", bytes.TrimSpace(name), pid))
	}
	if found == nil {
		return []string{"a process that this user cannot see"}
	}
	return found
}

// holds reports whether a process works in a mount, has a file of it open or
// has one mapped.
func holds(proc, point string) bool {
	fds, _ := filepath.Glob(proc + "/fd/*")
	for _, link := range append(fds, proc+"/cwd", proc+"/root") {
		if to, err := os.Readlink(link); err == nil && underneath(to, point) {
			return true
		}
	}
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(maps) {
		if at := bytes.IndexByte(line, '/'); at >= 0 && underneath(string(bytes.TrimSpace(line[at:])), point) {
			return true
		}
	}
	return false
}

func underneath(name, point string) bool {
	rest, ok := strings.CutPrefix(name, point)
	return ok && (rest == "" || rest[0] == '/')
}
