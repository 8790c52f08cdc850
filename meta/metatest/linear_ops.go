package metatest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// linWorld is what the clients of one history have in common: what numbers of
// the model stand for, and what was seen last of each name.
type linWorld struct {
	mu      sync.Mutex
	dirs    []meta.InodeID // by number; the first is none
	known   []int8         // directories that somebody has seen
	files   []meta.InodeID // by number
	objects []chunk.ObjectID
	numbers map[any]uint16 // of both
	seen    map[linPlace]meta.Entry
}

func newLinWorld(a, b meta.InodeID) *linWorld {
	return &linWorld{
		dirs: []meta.InodeID{0, a, b}, known: []int8{1, 2}, files: make([]meta.InodeID, 1), objects: make([]chunk.ObjectID, 1),
		numbers: make(map[any]uint16), seen: make(map[linPlace]meta.Entry),
	}
}

// newFile returns a new file, with the number that the model has for it.
func (w *linWorld) newFile(name string) (meta.Entry, uint16) {
	e := File(name, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files = append(w.files, e.Inode)
	w.numbers[e.Inode] = uint16(len(w.files) - 1)
	return e, w.numbers[e.Inode]
}

func (w *linWorld) number(o chunk.ObjectID) uint16 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects = append(w.objects, o)
	w.numbers[o] = uint16(len(w.objects) - 1)
	return w.numbers[o]
}

// cell returns an entry as the model knows it.
func (w *linWorld) cell(e meta.Entry) linCell {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Kind == meta.KindDir {
		for i, d := range w.dirs {
			if d == e.Inode {
				return linCell{dir: int8(i)}
			}
		}
		return linCell{dir: -1}
	}
	return linCell{file: w.numbers[e.Inode], object: w.numbers[e.Object.ID]}
}

// saw notes what has a name.
func (w *linWorld) saw(p linPlace, e meta.Entry, c linCell) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[p] = e
	if c.dir > 0 {
		for _, d := range w.known {
			if d == c.dir {
				return
			}
		}
		w.known = append(w.known, c.dir)
	}
}

func (w *linWorld) place(rnd *rand.Rand) linPlace {
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := w.known[rnd.IntN(len(w.known))]
	if rnd.IntN(2) == 0 {
		dir = 1 + int8(rnd.IntN(2))
	}
	return linPlace{dir, int8(rnd.IntN(linNames))}
}

func (w *linWorld) where(p linPlace) (meta.InodeID, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dirs[p.dir], string(rune('a' + p.name))
}

func (w *linWorld) last(p linPlace) (meta.Entry, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.seen[p]
	return e, ok
}

// newDir makes a directory without a name; 0 if there are enough, or it failed.
func (w *linWorld) newDir(ctx context.Context, c *meta.Catalog, parent meta.InodeID) int8 {
	w.mu.Lock()
	full := len(w.dirs) > linDirs
	w.mu.Unlock()
	if full {
		return 0
	}
	id, err := c.NewDir(ctx, parent, meta.Attrs{Mode: 0o755})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || len(w.dirs) > linDirs {
		return 0
	}
	w.dirs = append(w.dirs, id)
	return int8(len(w.dirs) - 1)
}

// linCall is an operation that is ready to be made.
type linCall struct {
	op   linOp
	call func(context.Context) (meta.Entry, error)
}

// next chooses an operation.
func (w *linWorld) next(ctx context.Context, c *meta.Catalog, rnd *rand.Rand) linCall {
	p := w.place(rnd)
	dir, name := w.where(p)
	switch n := rnd.IntN(20); {
	case n < 5:
	case n < 8:
		return w.publishNew(c, p, rnd.IntN(3) > 0)
	case n < 10:
		return w.publishAgain(c, p)
	case n < 11:
		return w.replace(c, p)
	case n < 13:
		if d := w.newDir(ctx, c, dir); d != 0 {
			return w.mkdir(c, p, d)
		}
	case n < 15:
		return linCall{linOp{kind: "unlink", at: p}, func(ctx context.Context) (meta.Entry, error) {
			e, _, err := c.Unlink(ctx, dir, name, 0)
			return e, err
		}}
	case n < 16:
		return linCall{linOp{kind: "rmdir", at: p}, func(ctx context.Context) (meta.Entry, error) {
			_, err := c.Rmdir(ctx, dir, name)
			return meta.Entry{}, err
		}}
	default:
		return w.rename(c, p, w.place(rnd), rnd.IntN(3) == 0)
	}
	return w.lookup(c, p)
}

func (w *linWorld) lookup(c *meta.Catalog, p linPlace) linCall {
	dir, name := w.where(p)
	return linCall{linOp{kind: "lookup", at: p}, func(ctx context.Context) (meta.Entry, error) {
		return c.Lookup(ctx, dir, name)
	}}
}

func (w *linWorld) publishNew(c *meta.Catalog, p linPlace, excl bool) linCall {
	dir, name := w.where(p)
	e, file := w.newFile(name)
	op := linOp{kind: "publish", at: p, file: file, object: w.number(e.Object.ID), excl: excl}
	return linCall{op, func(ctx context.Context) (meta.Entry, error) {
		e, _, err := c.Publish(ctx, dir, e, meta.PublishIf{Exclusive: excl})
		return e, err
	}}
}

// publishAgain publishes another object under a name whose file was seen.
func (w *linWorld) publishAgain(c *meta.Catalog, p linPlace) linCall {
	dir, name := w.where(p)
	old, ok := w.last(p)
	if !ok || old.Kind != meta.KindFile {
		return w.lookup(c, p)
	}
	e := File(name, 1)
	e.Inode = old.Inode
	op := linOp{kind: "publish", at: p, file: w.cell(old).file, object: w.number(e.Object.ID), known: true}
	return linCall{op, func(ctx context.Context) (meta.Entry, error) {
		e, _, err := c.Publish(ctx, dir, e, meta.PublishIf{Over: &old, Known: true})
		return e, err
	}}
}

func (w *linWorld) replace(c *meta.Catalog, p linPlace) linCall {
	dir, name := w.where(p)
	old, ok := w.last(p)
	if !ok || old.Kind != meta.KindFile || old.Version == 0 {
		return w.lookup(c, p)
	}
	e := File(name, 1)
	e.Inode = old.Inode
	op := linOp{kind: "replace", at: p, was: w.cell(old), object: w.number(e.Object.ID)}
	return linCall{op, func(ctx context.Context) (meta.Entry, error) { return c.Replace(ctx, dir, e, old.Version) }}
}

func (w *linWorld) mkdir(c *meta.Catalog, p linPlace, d int8) linCall {
	dir, name := w.where(p)
	inode, _ := w.where(linPlace{d, 0})
	e := meta.Entry{Name: name, Kind: meta.KindDir, Inode: inode, Mode: 0o755, MtimeNs: 1, CtimeNs: 1}
	return linCall{linOp{kind: "mkdir", at: p, dir: d}, func(ctx context.Context) (meta.Entry, error) {
		return c.Link(ctx, dir, e)
	}}
}

func (w *linWorld) rename(c *meta.Catalog, p, to linPlace, excl bool) linCall {
	from, target := meta.Place{}, meta.Place{}
	from.Dir, from.Name = w.where(p)
	target.Dir, target.Name = w.where(to)
	return linCall{linOp{kind: "rename", at: p, to: to, excl: excl}, func(ctx context.Context) (meta.Entry, error) {
		m, err := c.Rename(ctx, from, target, meta.RenameOptions{NoReplace: excl})
		return m.Entry, err
	}}
}

// do makes a call and returns its outcome as the model knows it.
func (w *linWorld) do(ctx context.Context, call linCall) linOut {
	e, err := call.call(ctx)
	if err != nil {
		for _, known := range []error{
			meta.ErrStale, meta.ErrExist, meta.ErrIsDir, meta.ErrNotDir, meta.ErrNotEmpty, meta.ErrLoop, meta.ErrNotFound, meta.ErrConflict,
		} {
			if errors.Is(err, known) && !errors.Is(err, meta.ErrUnavailable) {
				return linOut{err: known}
			}
		}
		return linOut{err: fmt.Errorf("%w: %w", errLost, err)}
	}
	out := linOut{}
	switch call.op.kind {
	case "rmdir":
		return out
	case "rename":
		out.cell = w.cell(e)
		w.saw(call.op.to, e, out.cell)
	case "unlink":
		out.cell = w.cell(e)
	default:
		out.cell = w.cell(e)
		w.saw(call.op.at, e, out.cell)
	}
	return out
}
