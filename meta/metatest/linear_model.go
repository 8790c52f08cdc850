package metatest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/p2pfs/p2pfs/meta"
)

// Bounds of the tree that histories are about: the directories A and B, which
// stay, those that are made on the way, and so many names in each.
const (
	linDirs  = 10
	linNames = 3
)

// linOp is an operation of a history.
type linOp struct {
	kind   string
	at, to linPlace // to: of renames; of a clear it is what the rename is to leave
	dir    int8     // that mkdir makes
	file   uint16   // inode that is published
	object uint16   // that is published
	was    linCell  // what replace takes the place of
	excl   bool     // of publish and rename
	known  bool     // of publish
}

// linPlace is a name in a directory.
type linPlace struct{ dir, name int8 }

func (p linPlace) String() string { return fmt.Sprintf("%d/%c", p.dir, 'a'+p.name) }

// linCell is what has a name: nothing, a file, or a directory.
type linCell struct {
	dir    int8 // number of a directory; 0: it is a file, or nothing
	file   uint16
	object uint16
}

func (c linCell) String() string {
	switch {
	case c == linCell{}:
		return "-"
	case c.dir != 0:
		return fmt.Sprint("dir ", c.dir)
	}
	return fmt.Sprint("file ", c.file, ".", c.object)
}

// linOut is the outcome of an operation: the error of meta that it is, nil for
// success, errLost if no answer came, and what was found, moved or removed.
type linOut struct {
	err  error
	cell linCell
}

// errLost: the operation may have happened, or may still happen.
var errLost = errors.New("no answer")

// linTree is the state of the model. Directory numbers begin with 1.
type linTree struct {
	cells [linDirs + 1][linNames]linCell
	dead  uint16 // bit of each directory that was removed
}

func (s *linTree) get(p linPlace) linCell    { return s.cells[p.dir][p.name] }
func (s *linTree) set(p linPlace, c linCell) { s.cells[p.dir][p.name] = c }
func (s *linTree) isDead(dir int8) bool      { return s.dead&(1<<dir) != 0 }
func (s *linTree) empty(dir int8) bool       { return s.cells[dir] == [linNames]linCell{} }

// below reports whether a directory is another one or lies below it.
func (s *linTree) below(dir, top int8) bool {
	if dir == top {
		return true
	}
	for _, c := range s.cells[top] {
		if c.dir != 0 && s.below(dir, c.dir) {
			return true
		}
	}
	return false
}

// errors returns the errors that an operation may end with in a state; none:
// it has to succeed.
func (op linOp) errors(s *linTree) (out []error) {
	add := func(is bool, err error) {
		if is {
			out = append(out, err)
		}
	}
	c := s.get(op.at)
	there, dir := c != linCell{}, c.dir != 0
	switch op.kind {
	case "lookup":
		add(!there, meta.ErrNotFound)
	case "publish":
		add(s.isDead(op.at.dir), meta.ErrNotFound)
		add(op.known && (!there || c.file != op.file), meta.ErrStale)
		add(!op.known && dir, meta.ErrIsDir)
		add(!op.known && op.excl && there, meta.ErrExist)
	case "replace":
		add(!there, meta.ErrNotFound)
		add(there, meta.ErrConflict) // its version may be another, though it is the same
	case "mkdir":
		add(s.isDead(op.at.dir), meta.ErrNotFound)
		add(there, meta.ErrExist)
	case "unlink":
		add(!there, meta.ErrNotFound)
		add(dir, meta.ErrIsDir)
	case "rmdir":
		add(!there, meta.ErrNotFound)
		add(there && !dir, meta.ErrNotDir)
		add(dir && !s.empty(c.dir), meta.ErrNotEmpty)
	case "rename":
		return op.renameErrors(s)
	}
	return out
}

func (op linOp) renameErrors(s *linTree) (out []error) {
	c, over := s.get(op.at), s.get(op.to)
	if c == (linCell{}) {
		return []error{meta.ErrNotFound}
	}
	if op.excl && over != (linCell{}) {
		return []error{meta.ErrExist}
	}
	if op.at == op.to {
		return nil
	}
	if s.isDead(op.to.dir) {
		out = append(out, meta.ErrNotFound)
	}
	if c.dir != 0 && s.below(op.to.dir, c.dir) {
		out = append(out, meta.ErrLoop)
	}
	switch {
	case over == linCell{}:
	case c.dir == 0 && over.dir != 0:
		out = append(out, meta.ErrIsDir)
	case c.dir != 0 && over.dir == 0:
		out = append(out, meta.ErrNotDir)
	case over.dir != 0 && !s.empty(over.dir):
		out = append(out, meta.ErrNotEmpty)
	}
	return out
}

// apply makes an operation that succeeds, and returns what it tells.
func (op linOp) apply(s *linTree) linCell {
	c := s.get(op.at)
	switch op.kind {
	case "publish":
		s.set(op.at, linCell{file: op.file, object: op.object})
	case "replace":
		s.set(op.at, linCell{file: c.file, object: op.object})
	case "mkdir":
		s.set(op.at, linCell{dir: op.dir})
	case "unlink":
		s.set(op.at, linCell{})
	case "rmdir":
		s.dead |= 1 << c.dir
		s.set(op.at, linCell{})
	case "rename":
		if op.at == op.to {
			break
		}
		if over := s.get(op.to); over.dir != 0 {
			s.dead |= 1 << over.dir
		}
		s.set(op.at, linCell{})
		s.set(op.to, c)
	}
	return c
}

// linStep is one step of the model.
func linStep(state, input, output any) (bool, any) {
	s, op, out := state.(linTree), input.(linOp), output.(linOut)
	may := op.errors(&s)
	switch {
	case errors.Is(out.err, errLost): // also: it never happened
		if len(may) == 0 || op.kind == "replace" && s.get(op.at) == op.was {
			op.apply(&s)
		}
		return true, s
	case out.err != nil:
		for _, e := range may {
			if e == out.err {
				return true, s
			}
		}
		return false, s
	case op.kind == "replace":
		if s.get(op.at) != op.was {
			return false, s
		}
	case len(may) > 0:
		return false, s
	}
	told := op.apply(&s)
	switch op.kind {
	case "lookup", "unlink":
		return told == out.cell, s
	case "rename": // the file may have been published again before it was told
		return told.dir == out.cell.dir && told.file == out.cell.file, s
	}
	return true, s
}

// linNext returns the states that may come after one: what a rename is to replace,
// an empty directory, is removed before it, also if the rename fails then.
func linNext(state, input, output any) []any {
	if op := input.(linOp); op.kind == "clear" {
		s := state.(linTree)
		out := []any{s}
		if c := s.get(op.at); c.dir != 0 && s.empty(c.dir) {
			linOp{kind: "rmdir", at: op.at}.apply(&s)
			out = append(out, s)
		}
		return out
	}
	if ok, s := linStep(state, input, output); ok {
		return []any{s}
	}
	return nil
}

// linModel is the tree as the rules of names promise it, one step after another.
func linModel() porcupine.Model {
	seed := maphash.MakeSeed()
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{linTree{}} },
		Step: linNext,
		Equal: func(a, b any) bool {
			return a.(linTree) == b.(linTree)
		},
		Hash:              func(s any) uint64 { return maphash.Comparable(seed, s.(linTree)) },
		DescribeOperation: func(in, out any) string { return in.(linOp).String() + " " + out.(linOut).String() },
		DescribeState:     func(s any) string { return s.(linTree).String() },
	}
	return m.ToModel()
}

func (op linOp) String() string {
	switch op.kind {
	case "publish":
		return fmt.Sprintf("publish %v file %d.%d excl=%v known=%v", op.at, op.file, op.object, op.excl, op.known)
	case "replace":
		return fmt.Sprintf("replace %v %v by .%d", op.at, op.was, op.object)
	case "mkdir":
		return fmt.Sprintf("mkdir %v as %d", op.at, op.dir)
	case "rename":
		return fmt.Sprintf("rename %v %v excl=%v", op.at, op.to, op.excl)
	}
	return op.kind + " " + op.at.String()
}

func (o linOut) String() string {
	if o.err != nil {
		return "-> " + o.err.Error()
	}
	return "-> ok " + o.cell.String()
}

func (s linTree) String() string {
	var b strings.Builder
	for d, names := range s.cells {
		for n, c := range names {
			if c != (linCell{}) {
				fmt.Fprintf(&b, "%v=%v ", linPlace{int8(d), int8(n)}, c)
			}
		}
	}
	return b.String()
}

func (op linOp) places() []linPlace {
	if op.kind == "rename" {
		return []linPlace{op.at, op.to}
	}
	return []linPlace{op.at}
}
