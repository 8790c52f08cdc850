package oracle

// written returns what a write does to a name with every store and node at
// hand: the world after the publish and Done, or the same world and an errno.
func (w *World) written(s Step, by Node) (*World, Result) {
	if r := w.walk(s.Path); r != Done {
		return w, r
	}
	e := w.names[s.Path]
	creates := s.Do != Append && s.Do != Patch && s.Do != Truncate
	switch {
	case e == nil && !creates:
		return w, "ENOENT"
	case e != nil && s.Do == Publish:
		return w, "EEXIST"
	case e != nil && e.Kind == Dir:
		return w, "EISDIR"
	}
	next := &Entry{Kind: File, Mode: 0o644, Keepers: 1 << by, Whole: 1 << by, None: All.Without(by)}
	if e != nil && s.Do != Save {
		next.Mode = e.Mode
	}
	switch s.Do {
	case Append:
		next.Data = e.Data.changed(s.Bytes(), -1)
	case Patch:
		next.Data = e.Data.changed(s.Bytes(), s.Off)
	case Truncate:
		next.Data = e.Data.cut(s.Size)
	default:
		next.Data = made(s)
	}
	return w.with(s.Path, next), Done
}

// registered returns what a registration does (K4).
func (w *World) registered(s Step) (*World, Result) {
	e := w.names[s.Path]
	if w.walk(s.Path) != Done || e != nil && e.Kind != File {
		return w, Refused
	}
	d := made(s)
	if e != nil && e.Data.Sum == d.Sum {
		c := *e
		c.Keepers, c.Source, c.Whole, c.None = c.Keepers.With(s.Node), c.Source.With(s.Node), c.Whole.With(s.Node), c.None.Without(s.Node)
		return w.with(s.Path, &c), Done
	}
	if e != nil && s.Do != Replace {
		return w, Refused
	}
	return w.with(s.Path, &Entry{
		Kind: File, Mode: 0o644, Data: d,
		Keepers: 1 << s.Node, Source: 1 << s.Node, Whole: 1 << s.Node, None: All.Without(s.Node),
	}), Done
}

// unregistered returns what unregister does.
func (w *World) unregistered(s Step) (*World, Result) {
	e := w.names[s.Path]
	if w.walk(s.Path) != Done || e == nil || e.Kind != File {
		return w, Refused
	}
	if !s.Force && !e.Keepers.Has(s.Node) && e.Data.size() > 0 {
		return w, Refused
	}
	return w.with(s.Path, nil), Done
}

// dropped returns all that drop may do: a kept copy is only given up for
// another complete one (K2).
func (w *World) dropped(s Step, reach Nodes) []outcome {
	e := w.names[s.Path]
	switch {
	case w.walk(s.Path) != Done || e == nil:
		return []outcome{{w, Refused}}
	case e.Kind != File || e.Data.size() == 0:
		return []outcome{{w, Done}}
	case e.Source.Has(s.Node):
		return []outcome{{w, Refused}}
	}
	gone := *e
	gone.Whole, gone.None, gone.Keepers = e.Whole.Without(s.Node), e.None.With(s.Node), e.Keepers.Without(s.Node)
	if !e.Keepers.Has(s.Node) || gone.Keepers&reach != 0 {
		return []outcome{{w.with(s.Path, &gone), Done}}
	}
	var all []outcome
	for n := range Node(Size) {
		if n != s.Node && reach.Has(n) && !e.None.Has(n) {
			next := gone
			next.Keepers = next.Keepers.With(n)
			next.Whole = next.Whole.With(n)
			all = append(all, outcome{w.with(s.Path, &next), Done})
		}
	}
	if e.Whole.Without(s.Node)&reach == 0 {
		all = append(all, outcome{w, Refused})
	}
	return all
}

// emptied is a node that lost its cache directory: what it alone held is gone.
func (w *World) emptied(n Node) *World {
	c := w.copy()
	for p, e := range w.names {
		next := *e
		next.Keepers, next.Source, next.Whole = e.Keepers.Without(n), e.Source.Without(n), e.Whole.Without(n)
		next.None = e.None.With(n)
		c.names[p] = &next
	}
	c.left[n] = nil
	return c
}
