package oracle

import "fmt"

// most is how many names the generator lets the tree grow to.
const most = 40

// choose fills in what a step is about.
func (g *Generator) choose(s *Step) bool {
	switch s.Do {
	case Collect:
		return true
	case Publish, Symlink, Mkdir:
		return g.chooseNew(s)
	case Register, Join, Replace:
		return g.chooseRegister(s)
	case Overwrite, Save:
		if g.r.IntN(4) == 0 {
			return g.chooseNew(s)
		}
		return g.chooseFile(s)
	case Race:
		for s.Other = s.Node; s.Other == s.Node; {
			s.Other = Node(g.r.IntN(Size))
		}
		return g.sound(s.Other) && g.chooseFile(s)
	case Torn:
		s.Delay = int64(g.r.IntN(40_000))
		return g.soundNodes() > 2 && g.sound(s.Node) && g.chooseFile(s)
	case Append, Patch, Truncate:
		return g.chooseFile(s) && g.m.Readable(s.Node, s.Path)
	case Unregister, Drop:
		s.Size = 0
		return g.chooseOld(s, File)
	case Rmdir:
		return g.chooseOld(s, g.mostly(Dir)) && g.m.CertainBelow(s.Path)
	case Unlink:
		return g.chooseOld(s, g.mostly(File, File, Link))
	case Chmod, Utimens:
		return g.chooseAttr(s)
	case Rename:
		return g.chooseRename(s)
	}
	panic("nothing chooses " + s.Do)
}

// mostly returns one of the kinds, or rarely another, which is to fail.
func (g *Generator) mostly(kinds ...FileKind) FileKind {
	if g.r.IntN(15) == 0 {
		return []FileKind{File, Dir, Link}[g.r.IntN(3)]
	}
	return kinds[g.r.IntN(len(kinds))]
}

func (g *Generator) size() int64 {
	switch g.r.IntN(12) {
	case 0:
		return 0
	case 1, 2, 3:
		return 1 + g.r.Int64N(g.block) // one block
	case 4, 5, 6, 7:
		return max(1, g.r.Int64N(6)*g.block+g.edge())
	}
	return max(1, g.r.Int64N(5)*g.chunk+g.edge())
}

func (g *Generator) edge() int64 { return []int64{-1, 0, 0, 1, 17}[g.r.IntN(5)] }

// fresh returns a name in a directory that exists, or rarely in none.
func (g *Generator) fresh(kind FileKind) string {
	var dirs []string
	for _, p := range g.m.Paths() {
		if e, ok := g.m.Certain(p); ok && e != nil && e.Kind == Dir && g.depth(p) < 3 {
			dirs = append(dirs, p+"/")
		}
	}
	dir := ""
	switch pick := g.r.IntN(20); {
	case pick == 0:
		dir = fmt.Sprintf("nowhere%d/", g.r.IntN(2))
	case pick > 4 && len(dirs) > 0:
		dir = dirs[g.r.IntN(len(dirs))]
	}
	return dir + fmt.Sprintf("%c%d", map[FileKind]rune{File: 'f', Dir: 'd', Link: 'l'}[kind], g.r.IntN(8))
}

func (g *Generator) depth(p string) (n int) {
	for ; p != ""; p = parent(p) {
		n++
	}
	return n
}

func (g *Generator) chooseNew(s *Step) bool {
	kind := map[Kind]FileKind{Mkdir: Dir, Symlink: Link}[s.Do]
	if kind == "" {
		kind = File
		s.Size = g.size()
	}
	s.Path = g.fresh(kind)
	e, ok := g.m.Certain(s.Path)
	if !ok || !g.parentsCertain(s.Path) || e != nil && g.r.IntN(6) > 0 || e == nil && len(g.m.Paths()) >= most {
		return false
	}
	if s.Do == Symlink {
		s.To = []string{"../nothing", "f1", "./d0/f2", "/absolute/\u00e9"}[g.r.IntN(4)]
	}
	return e == nil || e.Kind != Link || s.Do == Publish || s.Do == Symlink || s.Do == Mkdir
}

func (g *Generator) parentsCertain(p string) bool {
	for p = parent(p); p != ""; p = parent(p) {
		if _, ok := g.m.Certain(p); !ok {
			return false
		}
	}
	return true
}

func (g *Generator) chooseRegister(s *Step) bool {
	if s.Do == Register && g.r.IntN(5) > 0 {
		return g.chooseNew(s) && g.m.worlds[0].walk(s.Path) == Done
	}
	if !g.chooseOld(s, File) {
		return false
	}
	e, _ := g.m.Certain(s.Path)
	switch s.Do {
	case Join:
		s.Seed, s.Size = e.Data.Seed, e.Data.size()
		return s.Seed != 0 && s.Size > 0 && g.m.Readable(s.Node, s.Path)
	case Register: // refused
		s.Seed++
	}
	s.Size = 1 + g.size()
	return true
}

func (g *Generator) chooseFile(s *Step) bool {
	s.Size = 1 + g.size()
	if !g.chooseOld(s, File) {
		return false
	}
	e, _ := g.m.Certain(s.Path)
	switch s.Do {
	case Patch:
		s.Size = 1 + g.r.Int64N(2*g.block)
		s.Off = g.r.Int64N(e.Data.size() + g.block)
	case Append:
		s.Size = 1 + g.r.Int64N(2*g.block)
	case Truncate:
		s.Size = g.r.Int64N(e.Data.size() + g.block)
		return s.Size != e.Data.size()
	}
	return s.Off+s.Size+e.Data.size() < 40*g.block || s.Do == Overwrite || s.Do == Save || s.Do == Race || s.Do == Torn
}

// chooseOld picks a name that exists for sure.
func (g *Generator) chooseOld(s *Step, kind FileKind) bool {
	paths := g.m.Paths()
	for range 10 {
		if len(paths) == 0 {
			return false
		}
		p := paths[g.r.IntN(len(paths))]
		if e, ok := g.m.Certain(p); ok && e != nil && e.Kind == kind && g.parentsCertain(p) {
			s.Path = p
			return true
		}
	}
	return false
}

func (g *Generator) chooseAttr(s *Step) bool {
	if s.Do == Utimens {
		s.Mtime = 1_500_000_000_000_000_000 + g.r.Int64N(1e17)
		return g.chooseOld(s, File)
	}
	s.Mode = []uint32{0o600, 0o640, 0o644, 0o755, 0o700, 0o444}[g.r.IntN(6)]
	kind := File
	if g.r.IntN(4) == 0 {
		kind, s.Mode = Dir, s.Mode|0o700
	}
	return g.chooseOld(s, kind)
}

func (g *Generator) chooseRename(s *Step) bool {
	from := g.mostly(File, File, Dir, Dir, Link)
	if !g.chooseOld(s, from) || !g.m.CertainBelow(s.Path) {
		return false
	}
	if g.r.IntN(3) > 0 {
		s.To = g.fresh(from)
		if e, ok := g.m.Certain(s.To); !ok || e != nil && g.r.IntN(4) > 0 {
			return false
		}
	} else {
		to := Step{}
		if !g.chooseOld(&to, g.mostly(from)) {
			return false
		}
		s.To = to.Path
	}
	if g.r.IntN(15) == 0 && from == Dir {
		s.To = s.Path + "/" + g.fresh(Dir)
	}
	return g.m.CertainBelow(s.To) && g.parentsCertain(s.To) && g.depth(s.To) < 5
}
