package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// flushFiles is how many files are recorded together.
const flushFiles = 2000

// registration is one run of register: everything it makes is one set. The
// order is that of publishing: the local record that serves the bytes, the
// object records, the provider, and the names last, the top name of a tree
// after everything under it, so that a tree appears whole or not at all.
type registration struct {
	node   *Node
	caller caller
	scan   scanner
	tell   func(*nodepb.Progress) error

	progress *nodepb.Progress
	told     time.Time
	sources  []cache.Source
	objects  []meta.ObjectRecord
	// made has, for each source, the directories that no name leads to yet.
	made  [][]meta.InodeID
	named int // sources that have their name
}

// again accepts a name that stands for the very file that is registered: to
// register twice is no mistake. Anything else that has the name is refused.
func (r *registration) again(to target, s scanned) error {
	e := to.taken
	same := e.Kind == meta.KindFile && s.kind == meta.KindFile && e.Size == s.size
	if same && s.size > 0 {
		info, ok := r.node.cache.Stat(e.Object.ID)
		real := ""
		err := r.caller.do(func() (err error) {
			real, err = filepath.EvalSymlinks(s.path)
			return err
		})
		same = err == nil && ok && info.InPlace && info.Path == real && e.MtimeNs == s.mtime
	}
	if !same {
		return fmt.Errorf("%q: %w, for something else; unregister that first, or choose another name", to.name, meta.ErrExist)
	}
	r.progress.Files++
	r.progress.Bytes += s.size
	return nil
}

func (n *Node) register(ctx context.Context, c caller, req *nodepb.RegisterRequest, tell func(*nodepb.Progress) error) error {
	if n.cfg.ReadOnly {
		return errors.New("the node is mounted read-only; register on another or mount without --read-only")
	}
	if len(req.Sources) == 0 {
		return errors.New("nothing to register")
	}
	size := req.ChunkSize
	if size == 0 {
		size = n.chunkSize
	}
	if err := CheckChunkSize(size); err != nil {
		return fmt.Errorf("chunk size: %w", err)
	}
	mounts, err := ownMounts()
	if err != nil {
		return err
	}
	r := &registration{
		node: n, caller: c, tell: tell, progress: &nodepb.Progress{},
		scan: scanner{set: chunk.NewSetID(), chunkSize: size, mounts: mounts},
	}
	if err := r.run(ctx, req); err != nil {
		r.undo(context.WithoutCancel(ctx))
		return err
	}
	r.progress.Done = true
	return tell(r.progress)
}

func (r *registration) run(ctx context.Context, req *nodepb.RegisterRequest) error {
	type job struct {
		top    scanned
		target target
	}
	var jobs []job
	for _, src := range req.Sources {
		top, err := r.scanTop(string(src))
		if err != nil {
			return err
		}
		to, err := r.node.destination(ctx, string(req.Dest), top.name, req.DestIsDir || len(req.Sources) > 1)
		if err != nil {
			return err
		}
		if to.taken != nil {
			if err := r.again(to, top); err != nil {
				return err
			}
			continue
		}
		for _, j := range jobs {
			if j.target.dir == to.dir && j.target.name == to.name {
				return fmt.Errorf("%s and %s would both be named %q", j.top.path, top.path, to.name)
			}
		}
		jobs = append(jobs, job{top, to})
	}
	if len(jobs) == 0 {
		return nil
	}
	var tops []meta.Entry
	for _, j := range jobs {
		r.made = append(r.made, nil)
		e, err := r.prepare(ctx, j.target.dir, j.top)
		if err != nil {
			return err
		}
		e.Name = j.target.name
		tops = append(tops, e)
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	if err := r.node.catalog.Announce(ctx, r.scan.set, r.node.id, true, true); err != nil {
		return fmt.Errorf("announce set %s: %w", r.scan.set, err)
	}
	for i, j := range jobs {
		e, err := r.node.catalog.Link(ctx, j.target.dir, tops[i])
		if err != nil {
			return fmt.Errorf("name %q: %w", j.target.name, err)
		}
		r.named++
		r.node.view.Wrote(j.target.dir, e)
	}
	return nil
}

func (r *registration) scanTop(src string) (top scanned, err error) {
	if !filepath.IsAbs(src) {
		return top, fmt.Errorf("source %q is not an absolute path", src)
	}
	src = filepath.Clean(src)
	for _, own := range append([]string{r.node.cfg.Mountpoint}, r.node.cfg.CacheDirs...) {
		if src == own || strings.HasPrefix(src, own+"/") {
			return top, fmt.Errorf("%s is inside %s, which this node uses itself", src, own)
		}
	}
	err = r.caller.do(func() error {
		top, err = r.scan.one(src)
		return err
	})
	return top, err
}

// prepare makes all that a source needs but its own name, and returns the
// entry for it.
func (r *registration) prepare(ctx context.Context, parent meta.InodeID, s scanned) (meta.Entry, error) {
	e := meta.Entry{
		Name: s.name, Kind: s.kind, Mode: s.mode, UID: s.uid, GID: s.gid,
		MtimeNs: s.mtime, CtimeNs: time.Now().UnixNano(), Size: s.size, Target: s.target, Object: s.object,
	}
	switch s.kind {
	case meta.KindDir:
		dir, err := r.tree(ctx, parent, s)
		if err != nil {
			return e, err
		}
		e.Inode = dir
		return e, nil
	case meta.KindFile:
		e.Inode = meta.NewInodeID()
		return e, r.file(ctx, s)
	}
	e.Inode = meta.NewInodeID()
	return e, nil
}

// tree makes a directory that no name leads to, with all that is under it.
func (r *registration) tree(ctx context.Context, parent meta.InodeID, s scanned) (meta.InodeID, error) {
	var children []scanned
	err := r.caller.do(func() (err error) {
		children, err = r.scan.dir(s.path)
		return err
	})
	if err != nil {
		return 0, err
	}
	dir, err := r.node.catalog.NewDir(ctx, parent, meta.Attrs{Mode: s.mode, UID: s.uid, GID: s.gid, MtimeNs: s.mtime})
	if err != nil {
		return 0, fmt.Errorf("make the directory for %s: %w", s.path, err)
	}
	last := len(r.made) - 1
	r.made[last] = append(r.made[last], dir)
	entries := make([]meta.Entry, 0, len(children))
	for _, c := range children {
		e, err := r.prepare(ctx, dir, c)
		if err != nil {
			return 0, err
		}
		entries = append(entries, e)
	}
	if err := r.node.catalog.LinkMany(ctx, dir, entries); err != nil {
		return 0, fmt.Errorf("name the files of %s: %w", s.path, err)
	}
	r.remember(dir, entries)
	return dir, nil
}

// remember makes the names of a new directory outlive an outage: what is held
// here can then be found here, though nobody has listed it yet. It is wholly
// known, for nobody else has heard of it. entries are not used by the caller
// any more.
func (r *registration) remember(dir meta.InodeID, entries []meta.Entry) {
	at := uint64(0)
	for i := range entries {
		at = max(at, entries[i].Version)
	}
	r.node.storage.table.PutDir(dir, at, entries)
}

func (r *registration) file(ctx context.Context, s scanned) error {
	r.progress.Files++
	r.progress.Bytes += s.size
	r.progress.Path = []byte(s.path)
	if now := time.Now(); now.Sub(r.told) > 200*time.Millisecond {
		r.told = now
		if err := r.tell(r.progress); err != nil {
			return err
		}
	}
	if s.size == 0 {
		return nil
	}
	r.sources = append(r.sources, cache.Source{Object: s.object, Path: s.path, ID: s.id, Zero: s.zero})
	if s.object.Blocks() > 1 {
		r.objects = append(r.objects, meta.ObjectRecord{Object: s.object, Zeros: s.zero})
	}
	if len(r.sources) < flushFiles {
		return nil
	}
	return r.flush(ctx)
}

func (r *registration) flush(ctx context.Context) error {
	if err := r.node.cache.RegisterInPlace(ctx, r.sources); err != nil {
		return fmt.Errorf("record the registered files: %w", err)
	}
	if err := r.node.catalog.PutObjects(ctx, r.objects); err != nil {
		return fmt.Errorf("write the object records: %w", err)
	}
	r.sources, r.objects = r.sources[:0], r.objects[:0]
	return nil
}

// undo removes what a failed registration made and no name leads to. Sources
// that have their name already stay, as with cp.
func (r *registration) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	var errs []error
	if r.named == 0 {
		_, err := r.node.cache.ForgetInPlaceSet(ctx, r.scan.set)
		errs = append(errs, err, r.node.registry.withdraw(ctx, r.scan.set))
	}
	for _, dirs := range r.made[r.named:] {
		for _, dir := range dirs {
			errs = append(errs, r.node.catalog.DiscardTree(ctx, dir))
			r.remember(dir, nil)
		}
	}
	if err := errors.Join(errs...); err != nil {
		r.node.log.Warn("remains of a failed registration", "set", r.scan.set, "err", err)
	}
}

const undoTimeout = 10 * time.Second
