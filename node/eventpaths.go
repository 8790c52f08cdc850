package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/p2pfs/p2pfs/meta"
)

const (
	// knownDirs is how many directories a follower remembers the names of.
	knownDirs = 100_000
	// keptNews is how many names in directories without a name it remembers.
	keptNews = 20_000
)

// dirNames is what finding the path of a directory takes; meta.Catalog.
type dirNames interface {
	Dir(ctx context.Context, dir meta.InodeID) (meta.DirInfo, error)
	List(ctx context.Context, dir meta.InodeID, fn func([]meta.Entry) error) (uint64, error)
}

// dirPlace is where a directory is.
type dirPlace struct {
	at meta.Place
	// hidden: no name leads to it yet, as to the directories of a tree that is
	// being registered. kept are the entries it was given meanwhile; lost says
	// that they were too many to be kept.
	hidden bool
	kept   map[string]meta.Entry
	lost   bool
}

// eventPaths finds the paths of directories by their ids. It hears of every
// change of a directory's name, so that what it remembers stays right. Not safe
// for concurrent use.
type eventPaths struct {
	names dirNames
	dirs  map[meta.InodeID]dirPlace
	kept  int // entries in all of dirs
}

func newEventPaths(names dirNames) *eventPaths {
	return &eventPaths{names: names, dirs: map[meta.InodeID]dirPlace{}}
}

// made takes note of a directory that has no name yet.
func (p *eventPaths) made(dir meta.InodeID) { p.dirs[dir] = dirPlace{hidden: true} }

// gone forgets a directory that was removed without ever having had a name.
func (p *eventPaths) gone(dir meta.InodeID) {
	if d := p.dirs[dir]; d.hidden {
		p.kept -= len(d.kept)
		delete(p.dirs, dir)
	}
}

// named takes note of a directory's name, and returns the entries it was given
// when it had none, in the order of names. lost: there may be some that are not
// known: they were too many, or it was made before the changes began that this
// was told of.
func (p *eventPaths) named(dir meta.InodeID, at meta.Place) (kept []meta.Entry, lost bool) {
	d, known := p.dirs[dir]
	p.kept -= len(d.kept)
	p.set(dir, at)
	kept = slices.SortedFunc(maps.Values(d.kept), func(a, b meta.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return kept, d.lost || !known
}

// moved takes note of a directory's new name.
func (p *eventPaths) moved(dir meta.InodeID, at meta.Place) { p.set(dir, at) }

// keep takes note of a name in a hidden directory: it is told when that has a
// name itself. there: it is there, and not gone.
func (p *eventPaths) keep(dir meta.InodeID, e meta.Entry, there bool) {
	if there && e.Kind == meta.KindDir {
		d, known := p.dirs[e.Inode]
		d.hidden, d.lost = true, d.lost || !known
		p.dirs[e.Inode] = d
	}
	d := p.dirs[dir]
	p.kept -= len(d.kept)
	switch {
	case !there:
		delete(d.kept, e.Name)
	case d.lost || p.kept+len(d.kept) >= keptNews:
		d.kept, d.lost = nil, true
	default:
		if d.kept == nil {
			d.kept = map[string]meta.Entry{}
		}
		d.kept[e.Name] = e
	}
	p.kept += len(d.kept)
	p.dirs[dir] = d
}

func (p *eventPaths) set(dir meta.InodeID, at meta.Place) {
	if _, ok := p.dirs[dir]; !ok && len(p.dirs) >= knownDirs {
		for id, d := range p.dirs { // they are found again; what is hidden is not
			if !d.hidden {
				delete(p.dirs, id)
			}
		}
	}
	p.dirs[dir] = dirPlace{at: at}
}

// forget takes note that a directory's name was removed.
func (p *eventPaths) forget(dir meta.InodeID) { delete(p.dirs, dir) }

// of returns the path of a directory inside the mount; hidden: it has none yet.
// Below a directory that is no more it begins with "?" and that one's id.
func (p *eventPaths) of(ctx context.Context, dir meta.InodeID) (at string, hidden bool, err error) {
	return p.up(ctx, dir, 0)
}

func (p *eventPaths) up(ctx context.Context, dir meta.InodeID, depth int) (string, bool, error) {
	if dir == meta.RootDir {
		return "", false, nil
	}
	d, ok := p.dirs[dir]
	if !ok {
		var err error
		d, ok, err = p.find(ctx, dir)
		if err != nil {
			return "", false, err
		}
	}
	switch {
	case !ok || depth > maxDepth:
		return fmt.Sprintf("?%016x", uint64(dir)), false, nil
	case d.hidden:
		return "", true, nil
	}
	above, hidden, err := p.up(ctx, d.at.Dir, depth+1)
	return path.Join(above, d.at.Name), hidden, err
}

// errFound ends a listing.
var errFound = errors.New("found")

// find asks the store for the place of a directory; false: it is no more.
func (p *eventPaths) find(ctx context.Context, dir meta.InodeID) (dirPlace, bool, error) {
	info, err := p.names.Dir(ctx, dir)
	if errors.Is(err, meta.ErrNotFound) || errors.Is(err, meta.ErrFormat) {
		return dirPlace{}, false, nil
	}
	if err != nil {
		return dirPlace{}, false, err
	}
	_, err = p.names.List(ctx, info.Parent, func(entries []meta.Entry) error {
		for _, e := range entries {
			if e.Kind != meta.KindDir || p.dirs[e.Inode].hidden {
				continue
			}
			p.set(e.Inode, meta.Place{Dir: info.Parent, Name: e.Name})
			if e.Inode == dir {
				return errFound
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return p.dirs[dir], true, nil
	case errors.Is(err, meta.ErrNotFound): // its parent is no more
		return dirPlace{}, false, nil
	case err != nil:
		return dirPlace{}, false, err
	}
	p.dirs[dir] = dirPlace{hidden: true, lost: true} // it may hold other things
	return p.dirs[dir], true, nil
}
