package oracle

import (
	"fmt"
	"maps"
	"slices"
)

// Model is all that the cluster may be in, and what is known of it for sure:
// which nodes run, and whom they reach.
type Model struct {
	worlds []*World

	Up    Nodes // whose daemon runs
	Store Nodes // whose network to the store is whole
	Peers Nodes // whose network to other nodes is whole
	Lives bool  // the store runs

	// What a node knew for sure when it was cut off, and goes by since; nil if
	// it is not cut off.
	knew [Size]*World
	seen [Size]*World // as a node was last seen to show every name, since it started
}

// NewModel is a cluster that is up and empty.
func NewModel() *Model {
	w := newWorld()
	m := &Model{worlds: []*World{w}, Up: All, Store: All, Peers: All, Lives: true}
	for n := range m.seen {
		m.seen[n] = w
	}
	return m
}

// outcome is one thing that a step may do.
type outcome struct {
	world  *World
	result Result
}

// Connected are the nodes that run and reach the store.
func (m *Model) Connected() Nodes {
	if !m.Lives {
		return 0
	}
	return m.Up & m.Store
}

// reach are the nodes that a node can fetch from, itself included.
func (m *Model) reach(n Node) Nodes {
	if !m.Peers.Has(n) {
		return 1 << n & m.Up
	}
	return m.Up & m.Peers
}

// Take tells the model what a step did. An error says that no allowed world
// explains it.
func (m *Model) Take(s Step, r Result) error {
	var next []*World
	var allowed []Result
	for _, w := range m.worlds {
		for _, o := range m.outcomes(w, s) {
			allowed = append(allowed, o.result)
			if o.result == r {
				next = append(next, o.world)
			}
		}
	}
	if len(next) == 0 {
		slices.Sort(allowed)
		return fmt.Errorf("it ended with %q, allowed is %q", r, slices.Compact(allowed))
	}
	m.worlds = distinct(next)
	m.fault(s)
	return nil
}

func distinct(worlds []*World) []*World {
	byKey := map[string]*World{}
	for _, w := range worlds {
		byKey[w.key()] = w
	}
	if len(byKey) == len(worlds) {
		return worlds
	}
	return slices.Collect(maps.Values(byKey))
}

// outcomes are all that a step may do in one world.
func (m *Model) outcomes(w *World, s Step) []outcome {
	switch s.Do {
	case Mkdir, Rmdir, Unlink, Rename, Symlink, Chmod, Utimens:
		next, r := w.natural(s)
		_, known := m.seen[s.Node].natural(s)
		return m.byWhatItKnew(s.Node, w, m.far(s.Node, w, next, r), known)
	case Publish, Overwrite, Append, Patch, Truncate, Save:
		next, r := w.written(s, s.Node)
		_, known := m.seen[s.Node].written(s, s.Node)
		all := m.byWhatItKnew(s.Node, w, m.farWrite(s, w, next, r), known)
		if r == Done && (s.Do == Append || s.Do == Patch || s.Do == Truncate) && !m.Readable(s.Node, s.Path) {
			// Of what stays, bytes may be out of reach (R3): when it is written, or
			// when it is published. It asked for them: they may come later.
			e := next.names[s.Path]
			w := w.asked(s.Node, s.Path)
			all = append(all, outcome{w, EIO}, outcome{w.leave(s.Node, s.Path, Left{Data: e.Data, Mode: e.Mode, Lacks: true}), EIO + AtClose})
		}
		return all
	case Torn:
		return m.torn(w, s)
	case Race:
		return m.race(w, s)
	case Register, Join, Replace:
		next, r := w.registered(s)
		return m.farCommand(s.Node, w, next, r)
	case Unregister:
		next, r := w.unregistered(s)
		return m.farCommand(s.Node, w, next, r)
	case Drop:
		var all []outcome
		for _, o := range w.dropped(s, m.reach(s.Node)&m.Connected()) {
			all = append(all, m.farCommand(s.Node, w, o.world, o.result)...)
			if e := w.names[s.Path]; e != nil && !e.Keepers.Has(s.Node) {
				all = append(all, o) // a copy that is not kept is nobody's business
			}
		}
		return all
	case Recover:
		return w.recovered(s)
	case RestartEmpty:
		return []outcome{{w.emptied(s.Node), Done}}
	}
	return []outcome{{w, Done}}
}

// far is a change by a node that may be cut off from the store (O2).
func (m *Model) far(n Node, w, next *World, r Result) []outcome {
	if m.Connected().Has(n) {
		return []outcome{{next, r}}
	}
	if r != Done || next == w {
		return []outcome{{w, r}, {w, EIO}}
	}
	return []outcome{{w, EIO}, {next, EIO}}
}

// byWhatItKnew adds what a node that is cut off may answer by what it showed last,
// though others have changed it since (O1): what it does not know is no answer (R3).
func (m *Model) byWhatItKnew(n Node, w *World, all []outcome, known Result) []outcome {
	if !m.Connected().Has(n) && known != Done && known != "ENOENT" {
		all = append(all, outcome{w, known})
	}
	return all
}

// farCommand is far for a command, which has no errno.
func (m *Model) farCommand(n Node, w, next *World, r Result) []outcome {
	all := m.far(n, w, next, r)
	for i := range all {
		if all[i].result != Done {
			all[i].result = Refused
		}
	}
	return all
}

// farWrite is far for a file (O3): what close could not publish is left (W10).
func (m *Model) farWrite(s Step, w, next *World, r Result) []outcome {
	if r != Done || m.Connected().Has(s.Node) {
		return m.far(s.Node, w, next, r)
	}
	e := next.names[s.Path]
	return []outcome{
		{w, EIO}, // of open
		{w.leave(s.Node, s.Path, Left{Data: e.Data, Mode: e.Mode}), EIO + AtClose},
		{next.leave(s.Node, s.Path, Left{Data: e.Data, Mode: e.Mode, Maybe: true}), EIO + AtClose},
	}
}

// torn is an overwrite whose daemon dies at some time: done is done (C1), else
// the name is the old or the new, and what was written may be left (C2, C3).
func (m *Model) torn(w *World, s Step) []outcome {
	next, r := w.written(s, s.Node)
	if r != Done {
		return []outcome{{w, r}, {w, Broken}}
	}
	e := next.names[s.Path]
	l := Left{Data: e.Data, Mode: e.Mode, Maybe: true}
	return []outcome{{next, Done}, {w.leave(s.Node, s.Path, l), Broken}, {next.leave(s.Node, s.Path, l), Broken}}
}

// race is two writers of one file: the last to publish wins, whole (W7).
func (m *Model) race(w *World, s Step) []outcome {
	one, r := w.written(s, s.Node)
	if r != Done {
		return []outcome{{w, r}}
	}
	s.Seed++
	two, _ := w.written(s, s.Other)
	return []outcome{{one, Done}, {two, Done}}
}

// recovered is a node's leftovers published or thrown away.
func (w *World) recovered(s Step) []outcome {
	gone := w.copy()
	l, ok := gone.left[s.Node][s.Path]
	delete(gone.left[s.Node], s.Path)
	var all []outcome
	if !ok || l.Maybe {
		all = append(all, outcome{gone, Nothing})
	}
	if !ok {
		return all
	}
	all = append(all, outcome{gone, Done})
	if s.Mode == 1 && l.Lacks {
		all = append(all, outcome{w, Refused})
	}
	if s.Mode == 1 {
		published := gone.with(s.Path, &Entry{
			Kind: File, Mode: l.Mode, Data: l.Data,
			Keepers: 1 << s.Node, Whole: 1 << s.Node, None: All.Without(s.Node),
		})
		if !l.Maybe {
			all = slices.DeleteFunc(all, func(o outcome) bool { return o.result == Done })
		}
		all = append(all, outcome{published, Done})
	}
	return all
}

// fault takes in what a step changes of the conditions.
func (m *Model) fault(s Step) {
	before := m.Connected()
	switch s.Do {
	case Kill, Torn:
		m.Up = m.Up.Without(s.Node)
	case Restart, RestartEmpty:
		m.Up = m.Up.With(s.Node)
	case CutStore:
		m.Store = m.Store.Without(s.Node)
	case CutPeers:
		m.Peers = m.Peers.Without(s.Node)
	case Heal:
		m.Store, m.Peers = m.Store.With(s.Node), m.Peers.With(s.Node)
	case StoreStop:
		m.Lives = false
	case StoreStart, StoreRestart, StoreWipe:
		m.Lives = true
	}
	for n := range Node(Size) {
		switch {
		case m.Connected().Has(n):
			m.knew[n] = nil
		case before.Has(n):
			m.knew[n] = m.unchanged(n)
		}
	}
	if s.Do == RestartEmpty || s.Do == Restart {
		m.seen[s.Node] = newWorld()
		if s.Do == RestartEmpty || !m.Connected().Has(s.Node) {
			m.knew[s.Node] = newWorld()
		}
	}
}

// unchanged returns what of the world that a node showed last stands as it did
// then, below directories that are the same ones: what has changed since, it may
// have heard of or not. A name that it heard to be gone, and that stands for
// something of the same looks once the node is cut off, is not known to it (O1).
func (m *Model) unchanged(n Node) *World {
	known, seen := newWorld(), m.seen[n].names
	for p, e := range seen {
		stands := true
		for q := p; q != ""; q = parent(q) {
			was := seen[q]
			for _, w := range m.worlds {
				now := w.names[q]
				stands = stands && same(was, now) && (was.Kind != Dir || was == now)
			}
		}
		if stands {
			known.names[p] = e
		}
	}
	return known
}

// Quiet reports whether every node runs and reaches all others and the store.
func (m *Model) Quiet() bool {
	return m.Up == All && m.Store == All && m.Peers == All && m.Lives
}
