package oracle

import "strings"

// natural returns what a change of names does with every store and node at
// hand: the world after it and Done, or the same world and an errno.
func (w *World) natural(s Step) (*World, Result) {
	if r := w.walk(s.Path); r != Done {
		return w, r
	}
	e := w.names[s.Path]
	switch s.Do {
	case Mkdir:
		if e != nil {
			return w, "EEXIST"
		}
		return w.with(s.Path, &Entry{Kind: Dir, Mode: 0o755}), Done
	case Symlink:
		if e != nil {
			return w, "EEXIST"
		}
		return w.with(s.Path, &Entry{Kind: Link, Mode: 0o777, Target: s.To}), Done
	case Rename:
		return w.rename(s.Path, s.To)
	}
	if e == nil {
		return w, "ENOENT"
	}
	switch s.Do {
	case Rmdir:
		if e.Kind != Dir {
			return w, "ENOTDIR"
		}
		if !w.empty(s.Path) {
			return w, "ENOTEMPTY"
		}
		return w.with(s.Path, nil), Done
	case Unlink:
		if e.Kind == Dir {
			return w, "EISDIR"
		}
		return w.with(s.Path, nil), Done
	case Chmod, Utimens:
		c := *e
		if s.Do == Chmod {
			c.Mode = s.Mode
		} else {
			c.Mtime = s.Mtime
		}
		return w.with(s.Path, &c), Done
	}
	panic("not a change of names: " + s.Do)
}

// rename answers as the kernel does, in its order.
func (w *World) rename(from, to string) (*World, Result) {
	if r := w.walk(to); r != Done {
		return w, r
	}
	e, target := w.names[from], w.names[to]
	switch {
	case e == nil:
		return w, "ENOENT"
	case below(to, from):
		return w, "EINVAL"
	case below(from, to):
		return w, "ENOTEMPTY"
	case from == to:
		return w, Done
	case target != nil && e.Kind == Dir && target.Kind != Dir:
		return w, "ENOTDIR"
	case target != nil && e.Kind != Dir && target.Kind == Dir:
		return w, "EISDIR"
	case target != nil && e.Kind == Dir && !w.empty(to):
		return w, "ENOTEMPTY"
	}
	c := w.copy()
	for p, e := range w.names {
		if p == from || below(p, from) {
			delete(c.names, p)
			c.names[to+strings.TrimPrefix(p, from)] = e
		}
	}
	return c, Done
}
