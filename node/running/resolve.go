package running

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symlinks a path may go through, as in the kernel.
const maxLinks = 40

// Resolve returns an absolute path for name as resolve does, and the p2pfs
// mount it lies under, alive or dead; false if under none.
func Resolve(name string) (abs string, m Mount, ok bool, err error) {
	mounts, err := Mounts()
	if err != nil {
		return "", Mount{}, false, err
	}
	all := points(nil, mounts)
	if abs, err = resolve(name, all); err != nil {
		return "", Mount{}, false, err
	}
	m, ok = mountAt(longestPrefix(abs, all), mounts)
	return abs, m, ok, nil
}

// resolve returns an absolute path without symlinks, "." and "..", as far as
// that takes no look into a mount: what lies under one of points is taken by
// its letters. A part that does not exist is kept.
func resolve(name string, points []string) (string, error) {
	if name == "" {
		return "", errors.New("empty path")
	}
	if !path.IsAbs(name) {
		wd, err := WorkingDir()
		if err != nil {
			return "", fmt.Errorf("resolve %q: %w", name, err)
		}
		name = wd + "/" + name
	}
	cur, todo, links := "/", strings.Split(name, "/"), 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			cur = path.Dir(cur)
			continue
		}
		next := path.Join(cur, part)
		target, ok := "", false
		if longestPrefix(next, points) == "" {
			target, ok = readlink(next)
		}
		if !ok {
			cur = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("resolve %q: %w", name, unix.ELOOP)
		}
		if path.IsAbs(target) {
			cur = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return cur, nil
}

// readlink returns the target of a symlink; false for anything else.
func readlink(name string) (string, bool) {
	target, err := os.Readlink(name)
	return target, err == nil
}

// WorkingDir returns the working directory, without symlinks. It asks the
// kernel, which knows the name without asking the file
// system; os.Getwd would stat it.
func WorkingDir() (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buf)
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	wd := string(buf[:max(n-1, 0)])
	if !path.IsAbs(wd) {
		return "", fmt.Errorf("working directory: %w", os.ErrNotExist)
	}
	return wd, nil
}

// longestPrefix returns the longest of points that is name or an ancestor of
// it; empty if there is none.
func longestPrefix(name string, points []string) string {
	best := ""
	for _, p := range points {
		if len(p) > len(best) && under(name, p) {
			best = p
		}
	}
	return best
}

// under reports whether name is dir or lies under it. Both are clean.
func under(name, dir string) bool {
	return name == dir || dir == "/" || (len(name) > len(dir) && name[:len(dir)] == dir && name[len(dir)] == '/')
}

// inside returns what follows dir in name, without a leading slash.
func inside(name, dir string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
}
