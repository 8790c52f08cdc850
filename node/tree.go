package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/p2pfs/p2pfs/meta"
)

// names is what the control service reads names through.
type names interface {
	Lookup(ctx context.Context, dir meta.InodeID, name string) (meta.Entry, error)
	Confirm(ctx context.Context, dir meta.InodeID, name string) (meta.Entry, error)
	List(ctx context.Context, dir meta.InodeID) ([]meta.Entry, error)
}

// place is a path inside the mount that was looked up.
type place struct {
	path  string       // "" is the root
	dir   meta.InodeID // that holds the name; 0 for the root
	entry meta.Entry
}

// rootEntry stands for the mountpoint itself, which no directory names.
func rootEntry() meta.Entry {
	return meta.Entry{Kind: meta.KindDir, Inode: meta.RootDir, Mode: 0o755}
}

// splitPath returns the names of a path inside the mount.
func splitPath(p string) ([]string, error) {
	var out []string
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." {
			continue
		}
		if err := meta.CheckName(part); err != nil {
			return nil, fmt.Errorf("path %q: %w", p, err)
		}
		out = append(out, part)
	}
	return out, nil
}

// resolve looks a path up, name by name; symlinks are not followed. The
// answer is as fresh as the store can give.
func resolve(ctx context.Context, n names, p string) (place, error) {
	parts, err := splitPath(p)
	if err != nil {
		return place{}, err
	}
	at := place{entry: rootEntry()}
	for _, name := range parts {
		if at.entry.Kind != meta.KindDir {
			return place{}, fmt.Errorf("%q: %w", "/"+at.path, meta.ErrNotDir)
		}
		e, err := n.Confirm(ctx, at.entry.Inode, name)
		if errors.Is(err, meta.ErrNotFound) {
			return place{}, fmt.Errorf("no %q in the cluster: %w", "/"+path.Join(at.path, name), meta.ErrNotFound)
		}
		if err != nil {
			return place{}, err
		}
		at = place{path: path.Join(at.path, name), dir: at.entry.Inode, entry: e}
	}
	return at, nil
}

// walk calls fn for every entry under a directory, parents before children.
func walk(ctx context.Context, n names, dir meta.InodeID, prefix string, fn func(p string, e meta.Entry) error) error {
	entries, err := n.List(ctx, dir)
	if err != nil {
		return fmt.Errorf("list %q: %w", "/"+prefix, err)
	}
	for _, e := range entries {
		p := path.Join(prefix, e.Name)
		if err := fn(p, e); err != nil {
			return err
		}
		if e.Kind == meta.KindDir {
			if err := walk(ctx, n, e.Inode, p, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// walkFiles calls fn for a file, or for every file under a directory.
func walkFiles(ctx context.Context, n names, at place, fn func(p string, e meta.Entry) error) error {
	if at.entry.Kind == meta.KindFile {
		return fn(at.path, at.entry)
	}
	if at.entry.Kind != meta.KindDir {
		return nil
	}
	return walk(ctx, n, at.entry.Inode, at.path, func(p string, e meta.Entry) error {
		if e.Kind != meta.KindFile {
			return nil
		}
		return fn(p, e)
	})
}
