package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/p2pfs/p2pfs/meta"
)

// target is where one source goes.
type target struct {
	dir   meta.InodeID
	name  string
	path  string      // from the root
	taken *meta.Entry // what has the name now; nil: nothing
}

// destHow says how a destination is meant.
type destHow int

const (
	destUnclear destHow = iota // a new name, or a directory to put the source into
	destIsDir                  // a directory to put the source into
	destIsName                 // the name of the source itself
)

// destinationOf finds where a source that is registered goes, as cp -r does, and
// makes the directories that are missing. One difference: a tree whose own name
// DEST has already is that tree, and is not put into itself.
func (n *Node) destinationOf(ctx context.Context, dest string, source scanned, how destHow) (target, error) {
	name := source.name
	at, err := resolve(ctx, n.view, dest)
	if errors.Is(err, meta.ErrNotFound) {
		parts, perr := splitPath(dest)
		if perr != nil {
			return target{}, perr
		}
		if how != destIsDir {
			name = parts[len(parts)-1]
			parts = parts[:len(parts)-1]
		}
		dir, err := n.mkdirAll(ctx, parts)
		return target{dir: dir, name: name, path: strings.Join(append(parts, name), "/")}, err
	}
	root := at.dir == 0
	switch {
	case err != nil:
		return target{}, err
	case how == destIsName && root:
		return target{}, errors.New("the mountpoint itself cannot be what is registered; name something under it")
	case how == destIsName, at.entry.Kind != meta.KindDir && how != destIsDir:
		return target{dir: at.dir, name: at.entry.Name, path: at.path, taken: &at.entry}, nil
	case at.entry.Kind != meta.KindDir:
		return target{}, fmt.Errorf("%q: %w", "/"+at.path, meta.ErrNotDir)
	}
	to := target{dir: at.entry.Inode, name: name, path: strings.TrimPrefix(at.path+"/"+name, "/")}
	e, err := n.view.Confirm(ctx, to.dir, name)
	switch {
	case err == nil:
		to.taken = &e
	case !errors.Is(err, meta.ErrNotFound):
		return target{}, err
	case how == destUnclear && !root && source.kind == meta.KindDir && at.entry.Name == name:
		return target{dir: at.dir, name: name, path: at.path, taken: &at.entry}, nil
	}
	return to, nil
}

// mkdirAll makes the directories of a path that are missing.
func (n *Node) mkdirAll(ctx context.Context, parts []string) (meta.InodeID, error) {
	at := meta.RootDir
	for i, name := range parts {
		shown := "/" + path.Join(parts[:i+1]...)
		e, err := n.view.Confirm(ctx, at, name)
		if errors.Is(err, meta.ErrNotFound) {
			e, err = n.mkdir(ctx, at, name)
			if errors.Is(err, meta.ErrExist) { // another made it meanwhile
				e, err = n.view.Confirm(ctx, at, name)
			}
		}
		if err != nil {
			return 0, fmt.Errorf("directory %q: %w", shown, err)
		}
		if e.Kind != meta.KindDir {
			return 0, fmt.Errorf("%q: %w", shown, meta.ErrNotDir)
		}
		at = e.Inode
	}
	return at, nil
}

// mkdir makes a directory that will outlive an outage: it is listed while there
// is next to nothing in it, and is watched from then on.
func (n *Node) mkdir(ctx context.Context, dir meta.InodeID, name string) (meta.Entry, error) {
	e, err := n.catalog.Mkdir(ctx, dir, name, meta.Attrs{Mode: 0o755})
	if err != nil {
		return e, err
	}
	n.view.Wrote(dir, e)
	if _, err := n.view.List(ctx, e.Inode); err != nil {
		n.log.Debug("a new directory cannot be listed yet", "name", name, "err", err)
	}
	return e, nil
}
