package running

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxRecord bounds what is read of a published file, in bytes.
const maxRecord = 1 << 20

// List returns the daemons that run here and that this user can learn of,
// ordered by mountpoint. What dead ones left behind is removed.
func List() ([]Info, error) {
	var all []Info
	for n, dir := range searchDirs() {
		found, err := listDir(dir)
		if err != nil && n == 0 {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b Info) int {
		return strings.Compare(a.Mountpoint+"\x00"+a.Node, b.Mountpoint+"\x00"+b.Node)
	})
	return all, nil
}

// listDir returns the live daemons of one runtime directory.
func listDir(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the runtime directory: %w", err)
	}
	if err := checkTrust(dir); err != nil {
		return nil, err
	}
	var live []Info
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		i, err := readInfo(path)
		switch {
		case err != nil:
			// Another format, or not ours: neither used nor removed.
		case i.Alive():
			live = append(live, i)
		default:
			removeStale(path)
		}
	}
	return live, nil
}

// readInfo reads one published file.
func readInfo(path string) (Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return Info{}, err
	}
	i, err := decode(b)
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", path, err)
	}
	return i, nil
}

// removeStale removes what a dead daemon left: its file, its socket, its links.
// It looks again under the lock, since the daemon may have come back. Failing
// is harmless, and certain for those who do not own the directory.
func removeStale(path string) {
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return
	}
	defer unlock()
	i, err := readInfo(path)
	if err != nil || i.Alive() {
		return
	}
	if filepath.Dir(i.Socket) == filepath.Dir(path) {
		if listening(i.Socket) {
			return // its successor's, or its own for a moment more
		}
		os.Remove(i.Socket)
	}
	for _, c := range i.CacheDirs {
		link := filepath.Join(c, linkName)
		if to, err := os.Readlink(link); err == nil && to == path {
			os.Remove(link)
		}
	}
	os.Remove(path)
}
