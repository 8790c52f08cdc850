package oracle

import (
	"fmt"
	"maps"
	"slices"
)

// Seen is what a node shows of one name.
type Seen struct {
	Kind   FileKind `json:"kind"`
	Mode   uint32   `json:"mode"`
	Size   int64    `json:"size,omitempty"`
	Mtime  int64    `json:"mtime,omitempty"`
	Nlink  uint64   `json:"nlink"`
	Target string   `json:"target,omitempty"`
	Sum    string   `json:"sum,omitempty"` // of the bytes, if they were read
	Err    Result   `json:"err,omitempty"` // of stat, or of reading
}

// Holding is what a node says it holds of a file.
type Holding struct {
	State     string // in-place, complete, partial, remote
	Providers []Provider
}

// Provider is one line of who holds a file.
type Provider struct {
	Node     Node
	Complete bool
	Keeper   bool
}

// View is all that was seen on one node.
type View struct {
	Node  Node
	Names map[string]Seen
	Err   Result             // of walking the mount
	Holds map[string]Holding // of some files
	Kept  int                // one more than the objects it keeps, after what has no name was removed; 0: not asked
}

// Look compares what the nodes show with every world that is allowed, and
// keeps those that explain it. If there is none the differences to the nearest
// are returned.
func (m *Model) Look(views []View) []string {
	var next []*World
	var least []string
	for i, w := range m.worlds {
		diff := m.differences(w, views)
		if len(diff) == 0 {
			next = append(next, w)
		}
		if i == 0 || len(diff) < len(least) {
			least = diff
		}
	}
	if len(next) == 0 {
		return least
	}
	for i, w := range next {
		next[i] = m.learned(w, views)
	}
	m.worlds = distinct(next)
	if len(m.worlds) == 1 {
		for _, v := range views {
			if m.Connected().Has(v.Node) {
				m.seen[v.Node] = m.worlds[0]
			}
		}
	}
	return nil
}

func (m *Model) differences(w *World, views []View) []string {
	var diff []string
	mtimes := map[string]int64{}
	for _, v := range views {
		if !m.Connected().Has(v.Node) {
			diff = append(diff, m.farDifferences(w, v)...)
			continue
		}
		if v.Err != Done {
			diff = append(diff, fmt.Sprintf("%s: the mount cannot be walked: %s", v.Node, v.Err))
			continue
		}
		// Bytes that were sealed and could not be published are kept, too (W10).
		if kept, unpublished := w.kept(v.Node), len(w.left[v.Node]); v.Kept > 0 && (v.Kept-1 < kept || v.Kept-1 > kept+unpublished) {
			diff = append(diff, fmt.Sprintf("%s: it keeps %d objects after a collection, and should %d, and at most %d that wait to be recovered (K3)", v.Node, v.Kept-1, kept, unpublished))
		}
		for _, p := range names(w, v) {
			d := m.difference(w, v, p)
			if s := v.Names[p]; d == "" && s.Kind == File {
				if _, left := w.left[v.Node][p]; !left {
					if t, ok := mtimes[p]; ok && t != s.Mtime {
						d = fmt.Sprintf("mtime %d, on another node %d", s.Mtime, t)
					}
					mtimes[p] = s.Mtime
				}
			}
			if d != "" {
				diff = append(diff, fmt.Sprintf("%s: %q: %s", v.Node, p, d))
			}
		}
	}
	return diff
}

// names are those of the world and those that the node shows.
func names(w *World, v View) []string {
	all := map[string]Seen{}
	maps.Copy(all, v.Names)
	for p := range w.names {
		if _, ok := all[p]; !ok {
			all[p] = Seen{}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// difference says in what a name on a connected node is not as in the world.
func (m *Model) difference(w *World, v View, p string) string {
	e, s := w.names[p], v.Names[p]
	_, shown := v.Names[p]
	if l, ok := w.left[v.Node][p]; ok {
		// Here it may be what could not be published, or what was there.
		if !shown || s.Kind == File && s.Size == l.Data.size() && (s.Sum == "" || s.Sum == l.Data.Sum) {
			return ""
		}
	}
	switch {
	case e == nil && !shown:
		return ""
	case e == nil:
		return fmt.Sprintf("there is a %s of %d bytes, and should be nothing", s.Kind, s.Size)
	case !shown:
		return fmt.Sprintf("it is not there, and should be a %s of %d bytes", e.Kind, e.Data.size())
	}
	if d := e.difference(s, m.Readable(v.Node, p)); d != "" {
		return d
	}
	if h, ok := v.Holds[p]; ok && e.Kind == File && e.Data.size() > 0 {
		return m.holdDifference(e, v.Node, h)
	}
	return ""
}

// difference compares names, attributes and bytes.
func (e *Entry) difference(s Seen, readable bool) string {
	switch {
	case s.Err != Done && (readable || s.Err != EIO || e.Kind != File):
		return fmt.Sprintf("%s, and should be a %s", s.Err, e.Kind)
	case s.Kind != e.Kind:
		return fmt.Sprintf("a %s, and should be a %s", s.Kind, e.Kind)
	case e.Kind != Link && s.Mode != e.Mode:
		return fmt.Sprintf("mode %o, and should be %o", s.Mode, e.Mode)
	case s.Target != e.Target:
		return fmt.Sprintf("leads to %q, and should to %q", s.Target, e.Target)
	case s.Nlink != 1:
		return fmt.Sprintf("%d links", s.Nlink)
	case e.Mtime != 0 && s.Mtime != e.Mtime:
		return fmt.Sprintf("mtime %d, and should be %d", s.Mtime, e.Mtime)
	case e.Kind == File && s.Size != e.Data.size():
		return fmt.Sprintf("%d bytes, and should be %d", s.Size, e.Data.size())
	case s.Sum != "" && s.Sum != e.Data.Sum:
		return fmt.Sprintf("%d bytes of digest %.12s, and should be %.12s", s.Size, s.Sum, e.Data.Sum)
	}
	return ""
}

// holdDifference compares who holds a file.
func (m *Model) holdDifference(e *Entry, n Node, h Holding) string {
	here := map[string]bool{"in-place": true, "complete": true}[h.State]
	switch {
	case e.Source.Has(n) != (h.State == "in-place"):
		return fmt.Sprintf("held %q, and registered on %q", h.State, e.Source)
	case e.Whole.Has(n) && !here:
		return fmt.Sprintf("held %q, and should be all here", h.State)
	case e.None.Has(n) && h.State != "remote":
		return fmt.Sprintf("held %q, and nothing should be here", h.State)
	case h.Providers == nil:
		return ""
	}
	var keepers, whole Nodes
	for _, p := range h.Providers {
		if p.Keeper {
			keepers = keepers.With(p.Node)
		}
		if p.Complete {
			whole = whole.With(p.Node)
		}
	}
	// A node that is down or cut off may be listed or not.
	sure := m.Connected() & m.Peers
	if !m.Peers.Has(n) {
		sure = 1 << n & m.Connected()
	}
	switch {
	case keepers.Has(n) != e.Keepers.Has(n):
		return fmt.Sprintf("keepers are %q, and should be %q", keepers, e.Keepers)
	case e.Keepers&sure&^keepers != 0: // others' records are of the set: more of them say nothing of one file
		return fmt.Sprintf("keepers are %q, and should be %q", keepers&sure, e.Keepers&sure)
	case e.Whole&sure&^whole != 0:
		return fmt.Sprintf("%q is not listed as holding it all", e.Whole&sure&^whole)
	case e.None&sure&whole != 0:
		return fmt.Sprintf("%q is listed as holding it all, and holds nothing", e.None&sure&whole)
	}
	return ""
}

// farDifferences compares a node that runs without the store: what it knew and
// nobody changed is there (O1), what it does not know is EIO and never absent
// (R3).
func (m *Model) farDifferences(w *World, v View) []string {
	var diff []string
	knew := m.knew[v.Node]
	for _, p := range names(w, v) {
		e, s := w.names[p], v.Names[p]
		_, shown := v.Names[p]
		_, left := w.left[v.Node][p]
		d := ""
		switch k := knew.names[p]; {
		case left:
		case v.Err == Done && !shown && k != nil && same(k, e):
			d = "it was known, and is not listed"
		case shown && s.Err == "ENOENT" && e != nil:
			d = "ENOENT, and it is only out of reach"
		case shown && s.Err == Done && k != nil && same(k, e):
			d = e.difference(s, e.Whole.Has(v.Node))
		}
		if d != "" {
			diff = append(diff, fmt.Sprintf("%s (without the store): %q: %s", v.Node, p, d))
		}
	}
	if v.Err != Done && v.Err != EIO {
		diff = append(diff, fmt.Sprintf("%s (without the store): walking the mount: %s", v.Node, v.Err))
	}
	return diff
}

// learned is the world with what the views show of who holds what, and of
// times.
func (m *Model) learned(w *World, views []View) *World {
	c := w.copy()
	for _, v := range views {
		for p, s := range v.Names {
			e := c.names[p]
			_, left := w.left[v.Node][p]
			if e == nil || e.Kind != File || left {
				continue
			}
			next := *e
			if s.Sum == e.Data.Sum {
				next.Whole, next.None = e.Whole.With(v.Node), e.None.Without(v.Node)
			}
			if m.Connected().Has(v.Node) {
				next.Mtime = s.Mtime
			}
			c.names[p] = &next
		}
	}
	return c
}

// Read tells the model that a node has read some of a file, or tried to.
func (m *Model) Read(n Node, path string) {
	for i, w := range m.worlds {
		m.worlds[i] = w.asked(n, path)
	}
}

// asked is the world in which a node may hold some of a file, which it asked for.
func (w *World) asked(n Node, path string) *World {
	e := w.names[path]
	if e == nil || !e.None.Has(n) {
		return w
	}
	next := *e
	next.None = e.None.Without(n)
	return w.with(path, &next)
}

// kept is how many objects a node keeps.
func (w *World) kept(n Node) (count int) {
	for _, e := range w.names {
		if e.Kind == File && e.Data.size() > 0 && e.Keepers.Has(n) {
			count++
		}
	}
	return count
}

// At compares what a node shows of one name with what it stands for, nil for
// nothing.
func At(e *Entry, s Seen) string {
	switch {
	case e == nil && s.Err == "ENOENT":
		return ""
	case e == nil:
		return fmt.Sprintf("there is a %s of %d bytes (%s), and should be nothing", s.Kind, s.Size, s.Err)
	}
	return e.difference(s, true)
}
