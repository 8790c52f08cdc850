package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// compareAtOnce is how many files are compared side by side: one reads the
// disk while another waits for checksums.
const compareAtOnce = 4

// joining is a file whose name stands for an object of the same size: if the
// bytes are equal, too, this node becomes a keeper of that object.
type joining struct {
	source scanned
	dir    meta.InodeID
	entry  meta.Entry
	at     string // its path under DEST, for people
	sums   []uint32
	equal  bool
	err    error // why it could not be compared
}

// meet finds what is to be done about a source under a name that may be taken.
// Where that stands for a directory, too, each name below it is met.
func (r *registration) meet(ctx context.Context, dir meta.InodeID, at string, taken *meta.Entry, s scanned) error {
	if taken == nil {
		r.namings = append(r.namings, &naming{dir: dir, source: s, entry: meta.Entry{Name: path.Base(at)}})
		return nil
	}
	e := *taken
	r.met = append(r.met, metName{dir, e})
	switch {
	case e.Kind != s.kind && (e.Kind == meta.KindDir || s.kind == meta.KindDir):
		return fmt.Errorf("%q is a %s and %s is a %s: %w", at, e.Kind, s.path, s.kind, meta.ErrExist)
	case e.Kind != s.kind:
		return r.differs(dir, at, e, s, fmt.Sprintf("a %s there, a %s here", e.Kind, s.kind))
	case s.kind == meta.KindDir:
		return r.meetTree(ctx, at, e, s)
	case s.kind == meta.KindSymlink:
		if e.Target != s.target {
			return r.differs(dir, at, e, s, fmt.Sprintf("it leads to %q there and to %q here", e.Target, s.target))
		}
		return r.count(s, true)
	case e.Size != s.size:
		return r.differs(dir, at, e, s, fmt.Sprintf("%d bytes there, %d here", e.Size, s.size))
	case s.size == 0:
		return r.count(s, true)
	}
	again, err := r.again(e, s)
	if again || err != nil {
		if err == nil {
			err = r.count(s, false)
		}
		return err
	}
	r.joins = append(r.joins, &joining{source: s, dir: dir, entry: e, at: at})
	return nil
}

// meetTree meets every name of a directory.
func (r *registration) meetTree(ctx context.Context, at string, e meta.Entry, s scanned) error {
	var children []scanned
	err := r.caller.do(func() (err error) {
		children, err = r.scan.dir(s.path)
		return err
	})
	if err != nil {
		return err
	}
	entries, err := r.node.view.List(ctx, e.Inode)
	if err != nil {
		return fmt.Errorf("list %q: %w", at, err)
	}
	there := make(map[string]*meta.Entry, len(entries))
	for i := range entries {
		there[entries[i].Name] = &entries[i]
	}
	for _, c := range children {
		if err := r.meet(ctx, e.Inode, path.Join(at, c.name), there[c.name], c); err != nil {
			return err
		}
	}
	return nil
}

// again reports whether a name stands for the very file that is registered: to
// register twice is no mistake.
func (r *registration) again(e meta.Entry, s scanned) (bool, error) {
	info, ok := r.node.cache.Stat(e.Object.ID)
	if !ok || !info.InPlace || e.MtimeNs != s.mtime {
		return false, nil
	}
	if state, _, _ := r.node.cache.Source(e.Object.ID); state != cache.SourceOK {
		return false, nil
	}
	real := ""
	err := r.caller.do(func() (err error) {
		real, err = filepath.EvalSymlinks(s.path)
		return err
	})
	return err == nil && info.Path == real, err
}

// differs refuses a source that is not what its name stands for, or, if it was
// asked to, makes the name stand for the source.
func (r *registration) differs(dir meta.InodeID, at string, e meta.Entry, s scanned, how string) error {
	if !r.replace {
		return fmt.Errorf("%q differs from %s: %s; add --replace to make the name stand for the new bytes: %w", at, s.path, how, meta.ErrExist)
	}
	r.namings = append(r.namings, &naming{dir: dir, source: s, entry: e, over: &e})
	return nil
}

// compare compares every file whose size is that of what its name stands for.
func (r *registration) compare(ctx context.Context) error {
	if len(r.joins) == 0 {
		return nil
	}
	var first atomic.Int64 // the first that differs; those after it need no look
	first.Store(int64(len(r.joins)))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(compareAtOnce)
	for i, j := range r.joins {
		group.Go(func() error {
			if int64(i) > first.Load() && !r.replace {
				return nil
			}
			if err := r.compareOne(gctx, j); err != nil {
				return err
			}
			if j.equal {
				return r.count(j.source, true)
			}
			for f := first.Load(); int64(i) < f && !first.CompareAndSwap(f, int64(i)); f = first.Load() {
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	equal := r.joins[:0]
	for _, j := range r.joins {
		if j.equal {
			equal = append(equal, j)
			continue
		}
		if j.err != nil && !r.replace {
			return fmt.Errorf("%q and %s have the same size, and %w", j.at, j.source.path, j.err)
		}
		if err := r.differs(j.dir, j.at, j.entry, j.source, "other bytes of the same size"); err != nil {
			return err
		}
	}
	r.joins = equal
	return nil
}

// compareOne fills in whether one file is equal. What it could not be compared
// with leaves it unequal.
func (r *registration) compareOne(ctx context.Context, j *joining) error {
	o := j.entry.Object
	sums, err := r.node.facts.ofAll(ctx, o)
	if errors.Is(err, errUnknown) {
		j.err = err
		return nil
	}
	if err != nil {
		return fmt.Errorf("compare %s with %q: %w", j.source.path, j.at, err)
	}
	var f *os.File
	err = r.caller.do(func() (err error) {
		f, err = r.scan.open(j.source.path)
		return err
	})
	if err != nil {
		return err
	}
	defer f.Close()
	if j.equal, err = matches(ctx, f, j.source, o, sums); err != nil {
		return fmt.Errorf("compare %s with %q: %w", j.source.path, j.at, err)
	}
	j.sums = sums
	return nil
}

// loosen lets the copies that the cache kept of what was joined be evicted: the
// registered file is what is kept from now on. It comes last, since an undo
// takes the registered files back.
func (r *registration) loosen(ctx context.Context) {
	for _, j := range r.joins {
		if err := r.node.cache.Loosen(ctx, j.entry.Object.ID); err != nil {
			r.node.log.Warn("the cache keeps a copy of a file that is registered", "path", j.source.path, "err", err)
		}
	}
}

// join makes this node a keeper of what was found to be equal: the record that
// serves the files from where they lie, the sums they are held to, and the
// word in the store, once for each set.
func (r *registration) join(ctx context.Context) error {
	if len(r.joins) == 0 {
		return nil
	}
	sources := make([]cache.Source, len(r.joins))
	sets := map[chunk.SetID]bool{}
	for i, j := range r.joins {
		o := j.entry.Object
		sources[i] = cache.Source{
			Object: o, Path: j.source.path, ID: j.source.id, Zero: j.source.zeroOf(o), Note: noteOf(j.dir, j.entry.Name),
		}
		sets[o.Set] = true
		if info, ok := r.node.cache.Stat(o.ID); !ok || !info.InPlace {
			r.joined = append(r.joined, o.ID)
		}
	}
	if err := r.node.cache.RegisterInPlace(ctx, sources); err != nil {
		return fmt.Errorf("record the registered files: %w", err)
	}
	for _, j := range r.joins {
		if err := r.node.cache.BindInPlace(ctx, j.entry.Object.ID, j.sums); err != nil {
			return fmt.Errorf("join %q: %w", j.at, err)
		}
	}
	for set := range sets {
		if err := r.node.catalog.Announce(ctx, set, r.node.id, true, true); err != nil {
			return fmt.Errorf("announce set %s: %w", set, err)
		}
	}
	return nil
}
