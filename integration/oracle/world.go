package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FileKind is what a name stands for.
type FileKind string

const (
	File FileKind = "file"
	Dir  FileKind = "dir"
	Link FileKind = "link"
)

// Entry is what a name stands for, and who holds it. It is never changed once
// it is in a World.
type Entry struct {
	Kind   FileKind
	Mode   uint32
	Mtime  int64 // 0: what the nodes say, all the same
	Target string
	Data   *Data

	Keepers Nodes // who must not evict it
	Source  Nodes // where it is registered in place
	Whole   Nodes // who holds all of it, known to
	None    Nodes // who holds none of it, known to
}

// Left is what a node has of a file that it could not publish.
type Left struct {
	Data  *Data
	Mode  uint32
	Maybe bool // it may have been lost, or published after all
	Lacks bool // some of it is bytes of before, and was out of reach
}

// World is one state that the cluster may be in.
type World struct {
	names map[string]*Entry // by path; the root is not among them
	left  [Size]map[string]Left
}

func newWorld() *World { return &World{names: map[string]*Entry{}} }

// copy returns a world to be changed.
func (w *World) copy() *World {
	c := &World{names: maps.Clone(w.names), left: w.left}
	for i, l := range c.left {
		c.left[i] = maps.Clone(l)
	}
	return c
}

// with returns a world in which a name stands for something else, or for
// nothing.
func (w *World) with(path string, e *Entry) *World {
	c := w.copy()
	if e == nil {
		delete(c.names, path)
	} else {
		c.names[path] = e
	}
	return c
}

func (w *World) leave(n Node, path string, l Left) *World {
	c := w.copy()
	if c.left[n] == nil {
		c.left[n] = map[string]Left{}
	}
	c.left[n][path] = l
	return c
}

// paths returns the names in order: directories before what is in them.
func (w *World) paths() []string { return slices.Sorted(maps.Keys(w.names)) }

// below reports whether p lies below dir.
func below(p, dir string) bool { return strings.HasPrefix(p, dir+"/") }

func parent(p string) string { return p[:max(0, strings.LastIndexByte(p, '/'))] }

// empty reports whether nothing is in a directory.
func (w *World) empty(dir string) bool {
	for p := range w.names {
		if below(p, dir) {
			return false
		}
	}
	return true
}

// walk says why the directory of a path cannot be reached.
func (w *World) walk(p string) Result {
	for i, c := range p {
		if c != '/' {
			continue
		}
		switch e := w.names[p[:i]]; {
		case e == nil:
			return "ENOENT"
		case e.Kind != Dir:
			return "ENOTDIR"
		}
	}
	return Done
}

// key is equal for equal worlds.
func (w *World) key() string {
	var b strings.Builder
	for _, p := range w.paths() {
		e := w.names[p]
		fmt.Fprintf(&b, "%s %s %o %d %q %p %d %d %d %d\n", p, e.Kind, e.Mode, e.Mtime, e.Target, e.Data, e.Keepers, e.Source, e.Whole, e.None)
	}
	for n, l := range w.left {
		for _, p := range slices.Sorted(maps.Keys(l)) {
			fmt.Fprintf(&b, "left %d %s %p %o %v %v\n", n, p, l[p].Data, l[p].Mode, l[p].Maybe, l[p].Lacks)
		}
	}
	return b.String()
}
