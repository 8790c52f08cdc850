package oracle

import (
	"maps"
	"slices"
)

// Certain returns what a name stands for, nil for nothing; false if that is
// not known, or if a node has an unpublished file of that name.
func (m *Model) Certain(path string) (*Entry, bool) {
	first := m.worlds[0].names[path]
	for _, w := range m.worlds {
		if e := w.names[path]; !same(first, e) {
			return nil, false
		}
		for _, l := range w.left {
			if _, ok := l[path]; ok {
				return nil, false
			}
		}
	}
	return first, true
}

// same reports whether two entries look the same to who reads them.
func same(a, b *Entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Mode == b.Mode && a.Mtime == b.Mtime && a.Target == b.Target && sum(a.Data) == sum(b.Data)
}

func sum(d *Data) string {
	if d == nil {
		return ""
	}
	return d.Sum
}

// CertainBelow reports whether all that a name stands for is certain.
func (m *Model) CertainBelow(path string) bool {
	for _, p := range m.Paths() {
		if p != path && !below(p, path) && !below(path, p) {
			continue
		}
		if _, ok := m.Certain(p); !ok {
			return false
		}
	}
	for _, w := range m.worlds {
		for _, l := range w.left {
			for p := range l {
				if p == path || below(p, path) || below(path, p) {
					return false
				}
			}
		}
	}
	return true
}

// Paths returns all names in any world, in order.
func (m *Model) Paths() []string {
	all := map[string]bool{}
	for _, w := range m.worlds {
		for p := range w.names {
			all[p] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Unsettled returns the files whose keepers are not known: a copy was given up
// for one of several.
func (m *Model) Unsettled() (paths []string) {
	for _, p := range m.Paths() {
		var first *Entry
		for _, w := range m.worlds {
			e := w.names[p]
			if e == nil || e.Kind != File {
				continue
			}
			if first == nil {
				first = e
			}
			if e.Keepers != first.Keepers {
				paths = append(paths, p)
				break
			}
		}
	}
	return paths
}

// Leftovers returns the paths of a node's unpublished files, in order.
func (m *Model) Leftovers(n Node) []string {
	all := map[string]bool{}
	for _, w := range m.worlds {
		for p := range w.left[n] {
			all[p] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Worlds is how many worlds are still allowed.
func (m *Model) Worlds() int { return len(m.worlds) }

// Readable reports whether a node can read all of a file for sure.
func (m *Model) Readable(n Node, path string) bool {
	for _, w := range m.worlds {
		e := w.names[path]
		if e == nil || e.Kind != File {
			return false
		}
		if e.Data.size() == 0 || e.Whole.Has(n) {
			continue
		}
		if !m.Connected().Has(n) || e.Whole&m.reach(n)&m.Connected() == 0 {
			return false
		}
	}
	return true
}

// Unreadable reports whether nobody that a node reaches can have the bytes.
func (m *Model) Unreadable(n Node, path string) bool {
	for _, w := range m.worlds {
		e := w.names[path]
		if e == nil || e.Kind != File || e.Data.size() == 0 || m.reach(n)&^e.None != 0 {
			return false
		}
	}
	return true
}
