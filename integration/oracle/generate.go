package oracle

import (
	"math/rand/v2"
	"slices"
)

// weights say how often each kind of step comes, in parts of their sum. What
// ends a fault (restart, heal, store-start) and Check come by themselves.
var weights = map[Kind]int{
	Register: 60, Join: 20, Replace: 15, Unregister: 25, Drop: 60,
	Publish: 120, Overwrite: 80, Append: 50, Patch: 50, Truncate: 25, Save: 40, Race: 15, Torn: 10,
	Mkdir: 50, Rmdir: 30, Unlink: 60, Rename: 90, Symlink: 25, Chmod: 25, Utimens: 20, Collect: 10,
	Kill: 14, CutStore: 8, CutPeers: 10, StoreStop: 4, StoreRestart: 4, StoreWipe: 5,
}

// many is with how many worlds a look is due that drops some.
const many = 100

// Generator makes steps that suit the state of a model.
type Generator struct {
	r       *rand.Rand
	m       *Model
	kinds   []Kind // each as often as it weighs
	owed    []Kind // have not come yet
	emptied bool   // a node was started without its cache directory
	chunk   int64  // sizes lie around its edges and those of block
	block   int64
	count   int
	steps   int
	checkIn int
	checks  int
	ends    map[Kind]int // when a fault of a node, or of the store, ends
	nodeEnd [Size]int
	wrote   bool // no more changes are tried in this outage: each waits for the store's time limit
}

// NewGenerator makes the same steps for the same seed, kinds and results. Of
// the steps that are to come the first half loses stores, and the second half
// cache directories: names that only one node knew are lost if both go.
func NewGenerator(seed uint64, m *Model, kinds []Kind, steps int, block, chunk int64) *Generator {
	g := &Generator{r: rand.New(rand.NewPCG(seed, 1)), m: m, steps: steps, block: block, chunk: chunk, ends: map[Kind]int{}}
	for _, k := range kinds {
		for range weights[k] {
			g.kinds = append(g.kinds, k)
		}
	}
	g.owed = slices.Clone(kinds)
	g.checkIn = 5
	return g
}

// Next returns the next step. What has not come by chance after four fifths of
// its time comes as soon as it can.
func (g *Generator) Next() Step {
	s := g.next()
	g.owed = slices.DeleteFunc(g.owed, func(k Kind) bool { return k == s.Do })
	return s
}

func (g *Generator) next() Step {
	g.count++
	if s, ok := g.end(); ok {
		return s
	}
	if g.m.Worlds() > many {
		g.checkIn = min(g.checkIn, 4)
	}
	if g.checkIn--; g.checkIn <= 0 {
		g.checkIn = 12 + g.r.IntN(10)
		g.checks++
		s := Step{Do: Check, Seed: g.r.Uint64()}
		if g.checks%6 == 0 {
			s.Mode = 1
		}
		return s
	}
	for _, k := range g.owed {
		if !g.late(k) {
			continue
		}
		if s := g.step(k); g.fill(&s) {
			return s
		}
	}
	for {
		if s := g.step(g.kinds[g.r.IntN(len(g.kinds))]); g.fill(&s) {
			return s
		}
	}
}

func (g *Generator) step(k Kind) Step { return Step{Do: k, Seed: g.r.Uint64()>>1 | 1} }

// late reports whether the time in which a kind comes is nearly over.
func (g *Generator) late(k Kind) bool {
	time := g.steps
	if k == StoreWipe {
		time /= 2
	}
	return g.count > time/5*4
}

// Finish returns the steps that end all faults and look at everything.
func (g *Generator) Finish() []Step {
	var all []Step
	if !g.m.Lives {
		all = append(all, Step{Do: StoreStart})
	}
	for n := range Node(Size) {
		if !g.m.Up.Has(n) {
			all = append(all, Step{Do: Restart, Node: n})
		}
		if !g.m.Store.Has(n) || !g.m.Peers.Has(n) {
			all = append(all, Step{Do: Heal, Node: n})
		}
		for _, p := range g.m.Leftovers(n) {
			all = append(all, Step{Do: Recover, Node: n, Path: p})
		}
	}
	return append(all, Step{Do: Check, Mode: 2})
}

// end ends a fault whose time has come, and clears up after it.
func (g *Generator) end() (Step, bool) {
	if !g.m.Lives && g.count >= g.ends[StoreStop] {
		g.soon()
		return Step{Do: StoreStart}, true
	}
	for n := range Node(Size) {
		due := g.count >= g.nodeEnd[n]
		switch {
		case !due:
		case !g.m.Up.Has(n) && g.count > g.steps/2 && (g.r.IntN(3) == 0 || !g.emptied && g.count > g.steps/5*3):
			g.emptied = true
			g.soon()
			return Step{Do: RestartEmpty, Node: n}, true
		case !g.m.Up.Has(n):
			g.soon()
			return Step{Do: Restart, Node: n}, true
		case !g.m.Store.Has(n) || !g.m.Peers.Has(n):
			g.soon()
			return Step{Do: Heal, Node: n}, true
		}
	}
	for n := range Node(Size) {
		if left := g.m.Leftovers(n); len(left) > 0 && g.m.Connected().Has(n) {
			return Step{Do: Recover, Node: n, Path: left[0], Mode: uint32(g.r.IntN(2))}, true
		}
	}
	return Step{}, false
}

// soon brings the next check near.
func (g *Generator) soon() { g.checkIn = min(g.checkIn, 1+g.r.IntN(3)) }

// fill makes a step of its kind complete, or reports that there is none now.
func (g *Generator) fill(s *Step) bool {
	s.Node = Node(g.r.IntN(Size))
	if !g.fit(s) {
		return false
	}
	switch s.Do {
	case Kill, Torn, CutStore, CutPeers:
		g.nodeEnd[s.Node] = g.count + 3 + g.r.IntN(10)
	case StoreStop:
		g.ends[StoreStop] = g.count + 2 + g.r.IntN(4)
	case StoreRestart, StoreWipe:
		g.soon()
	}
	return true
}

func (g *Generator) fit(s *Step) bool {
	n := s.Node
	switch s.Do {
	case Kill, CutStore, CutPeers:
		g.wrote = g.r.IntN(2) == 0
		return g.m.Lives && g.sound(n) && g.soundNodes() > 2
	case StoreStop, StoreRestart, StoreWipe:
		g.wrote = g.r.IntN(2) == 0
		return g.m.Quiet() && (s.Do != StoreWipe || g.count <= g.steps/2)
	}
	if !g.m.Up.Has(n) {
		return false
	}
	if !g.m.Connected().Has(n) { // costs the time limit of the store
		if g.wrote || s.Do == Race || s.Do == Torn || s.Do == Save || s.Do == Collect {
			return false
		}
		if !g.choose(s) {
			return false
		}
		g.wrote = true
		return true
	}
	return g.choose(s)
}

// sound reports whether nothing is wrong with a node.
func (g *Generator) sound(n Node) bool {
	return g.m.Connected().Has(n) && g.m.Peers.Has(n)
}

func (g *Generator) soundNodes() (count int) {
	for n := range Node(Size) {
		if g.sound(n) {
			count++
		}
	}
	return count
}
