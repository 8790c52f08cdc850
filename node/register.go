package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// flushFiles is how many files are recorded together.
const flushFiles = 2000

// registration is one run of register: everything new that it makes is one
// set. The order is that of publishing: the local record that serves the bytes,
// the object records, the provider, and the names last, the top name of a tree
// after everything under it, so that a tree appears whole or not at all.
type registration struct {
	node    *Node
	caller  caller
	scan    scanner
	replace bool
	ttl     time.Duration // that the names live; 0: for ever
	tell    func(*nodepb.Progress) error

	mu       sync.Mutex // held while tell is called, and for progress
	progress *nodepb.Progress
	told     time.Time

	sources []cache.Source
	objects []meta.ObjectRecord
	namings []*naming // in the order of the sources
	joins   []*joining
	joined  []chunk.ObjectID // recorded here by this run
	met     []metName
}

// naming is one name to be given.
type naming struct {
	dir    meta.InodeID
	source scanned
	entry  meta.Entry
	over   *meta.Entry // what has the name now; nil: nothing
	// What no name leads to before this one is given:
	dirs    []meta.InodeID
	objects []chunk.ObjectID
	given   bool
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
	ttl := n.cfg.KeyTTL
	if req.KeyTtlNs != nil {
		ttl = time.Duration(*req.KeyTtlNs)
	}
	if err := CheckKeyTTL(ttl); err != nil {
		return fmt.Errorf("key TTL %s: %w", ttl, err)
	}
	mounts, err := ownMounts()
	if err != nil {
		return err
	}
	var jobs []job
	for try := 1; ; try++ {
		r := &registration{
			node: n, caller: c, tell: tell, replace: req.Replace, ttl: ttl, progress: &nodepb.Progress{},
			scan: scanner{set: chunk.NewSetID(), chunkSize: size, mounts: mounts},
		}
		if jobs == nil {
			jobs, err = r.plan(ctx, req)
		} else {
			err = r.planAgain(ctx, jobs)
		}
		if err == nil {
			err = r.run(ctx, jobs)
		}
		if err == nil {
			r.loosen(context.WithoutCancel(ctx))
			r.progress.Done, r.progress.Path = true, nil
			if len(jobs) == 1 { // the place that it got, which may be below the one asked for
				r.progress.Path = []byte(jobs[0].target.path)
			}
			return tell(r.progress)
		}
		r.undo(context.WithoutCancel(ctx))
		// Another node took a name meanwhile: what it stands for now is
		// joined, or refused.
		if !errors.Is(err, errRaced) || try == registerTries {
			return err
		}
	}
}

// registerTries bounds how often names may be taken under a registration.
const registerTries = 5

// errRaced: names were taken between the look at them and their giving.
var errRaced = errors.New("another node changed the name meanwhile")

// job is one source and where it goes.
type job struct {
	top    scanned
	target target
}

// plan finds where each source goes.
func (r *registration) plan(ctx context.Context, req *nodepb.RegisterRequest) ([]job, error) {
	var jobs []job
	for _, src := range req.Sources {
		top, err := r.scanTop(string(src))
		if err != nil {
			return nil, err
		}
		how := destUnclear
		switch {
		case req.DestIsTree:
			how = destIsName
		case req.DestIsDir || len(req.Sources) > 1:
			how = destIsDir
		}
		to, err := r.node.destinationOf(ctx, string(req.Dest), top, how)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			if j.target.dir == to.dir && j.target.name == to.name {
				return nil, fmt.Errorf("%s and %s would both be named %q", j.top.path, top.path, to.name)
			}
		}
		jobs = append(jobs, job{top, to})
	}
	return jobs, nil
}

// planAgain looks at the same places again, and scans for a set of its own.
func (r *registration) planAgain(ctx context.Context, jobs []job) error {
	for i := range jobs {
		j := &jobs[i]
		top, err := r.scanTop(j.top.path)
		if err != nil {
			return err
		}
		e, err := r.node.view.Confirm(ctx, j.target.dir, j.target.name)
		j.target.taken = nil
		switch {
		case err == nil:
			j.target.taken = &e
		case !errors.Is(err, meta.ErrNotFound):
			return err
		}
		j.top = top
	}
	return nil
}

func (r *registration) run(ctx context.Context, jobs []job) error {
	for _, j := range jobs {
		if err := r.meet(ctx, j.target.dir, j.target.name, j.target.taken, j.top); err != nil {
			return err
		}
	}
	if err := r.compare(ctx); err != nil {
		return err
	}
	for _, n := range r.namings {
		if err := r.make(ctx, n); err != nil {
			return err
		}
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	if err := r.join(ctx); err != nil {
		return err
	}
	if len(r.namings) > 0 {
		if err := r.node.catalog.Announce(ctx, r.scan.set, r.node.id, true, true); err != nil {
			return fmt.Errorf("announce set %s: %w", r.scan.set, err)
		}
	}
	if err := r.name(ctx); err != nil {
		return err
	}
	return r.renew(ctx)
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

// make makes all that a name needs but itself. What is replaced stays the same
// file, with other bytes.
func (r *registration) make(ctx context.Context, n *naming) error {
	s := n.source
	s.name = n.entry.Name
	e, err := r.prepare(ctx, n, n.dir, s)
	if err != nil {
		return err
	}
	if n.over != nil && n.over.Kind == e.Kind {
		e.Inode = n.over.Inode
	}
	n.entry = e
	return nil
}

// prepare makes all that a source needs but its own name, and returns the
// entry for it.
func (r *registration) prepare(ctx context.Context, n *naming, parent meta.InodeID, s scanned) (meta.Entry, error) {
	e := meta.Entry{
		Name: s.name, Kind: s.kind, Mode: s.mode, UID: s.uid, GID: s.gid,
		MtimeNs: s.mtime, CtimeNs: time.Now().UnixNano(), Size: s.size, Target: s.target, Object: s.object,
		ExpiresNs: meta.Expiry(r.ttl),
	}
	switch s.kind {
	case meta.KindDir:
		dir, err := r.tree(ctx, n, parent, s)
		if err != nil {
			return e, err
		}
		e.Inode = dir
		return e, nil
	case meta.KindFile:
		e.Inode = meta.NewInodeID()
		return e, r.file(ctx, n, parent, s)
	}
	e.Inode = meta.NewInodeID()
	return e, nil
}

// tree makes a directory that no name leads to, with all that is under it.
func (r *registration) tree(ctx context.Context, n *naming, parent meta.InodeID, s scanned) (meta.InodeID, error) {
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
	n.dirs = append(n.dirs, dir)
	entries := make([]meta.Entry, 0, len(children))
	for _, c := range children {
		e, err := r.prepare(ctx, n, dir, c)
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

func (r *registration) file(ctx context.Context, n *naming, parent meta.InodeID, s scanned) error {
	if err := r.count(s, false); err != nil {
		return err
	}
	if s.size == 0 {
		return nil
	}
	n.objects = append(n.objects, s.object.ID)
	r.sources = append(r.sources, cache.Source{Object: s.object, Path: s.path, ID: s.id, Zero: s.zero, Note: noteOf(parent, s.name)})
	if s.object.Blocks() > 1 {
		r.objects = append(r.objects, meta.ObjectRecord{
			Object: s.object, Zeros: s.zero, References: []meta.Reference{{Dir: parent, Name: s.name}},
		})
	}
	if len(r.sources) < flushFiles {
		return nil
	}
	return r.flush(ctx)
}

// count counts one file as done and tells of it now and then.
func (r *registration) count(s scanned, joined bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.Files++
	r.progress.Bytes += s.size
	if joined {
		r.progress.Joined++
	}
	r.progress.Path = []byte(s.path)
	now := time.Now()
	if now.Sub(r.told) <= 200*time.Millisecond {
		return nil
	}
	r.told = now
	return r.tell(r.progress)
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

// name gives the names, those of one directory together.
func (r *registration) name(ctx context.Context) error {
	for rest := r.namings; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].dir == rest[0].dir && rest[n].over == nil && rest[0].over == nil {
			n++
		}
		if err := r.nameSome(ctx, rest[:n]); err != nil {
			if errors.Is(err, meta.ErrExist) || errors.Is(err, meta.ErrConflict) {
				err = fmt.Errorf("%w: %w", errRaced, err)
			}
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func (r *registration) nameSome(ctx context.Context, some []*naming) error {
	first := some[0]
	if first.over != nil {
		e, err := r.giveOver(ctx, first)
		if err != nil {
			return fmt.Errorf("name %q: %w", first.entry.Name, err)
		}
		r.named(first, e)
		return nil
	}
	for batch := range slices.Chunk(some, meta.MaxSets) {
		entries := make([]meta.Entry, len(batch))
		for i, n := range batch {
			entries[i] = n.entry
		}
		if err := r.node.catalog.LinkMany(ctx, first.dir, entries); err != nil {
			return err
		}
		for i, n := range batch {
			r.named(n, entries[i])
		}
	}
	return nil
}

// giveOver gives a name that stands for something else. Of a file it is a
// publish: it stays the same file.
func (r *registration) giveOver(ctx context.Context, n *naming) (meta.Entry, error) {
	if n.entry.Kind != meta.KindFile || n.over.Kind != meta.KindFile {
		e, err := r.node.catalog.Replace(ctx, n.dir, n.entry, n.over.Version)
		if errors.Is(err, meta.ErrNotFound) {
			err = fmt.Errorf("%w: %w", meta.ErrConflict, err)
		}
		return e, err
	}
	e, _, err := r.node.catalog.Publish(ctx, n.dir, n.entry, meta.PublishIf{Over: n.over, Known: true, SetAttrs: true})
	if errors.Is(err, meta.ErrStale) { // removed, or another file has the name
		err = fmt.Errorf("%w: %w", meta.ErrConflict, err)
	}
	return e, err
}

func (r *registration) named(n *naming, e meta.Entry) {
	n.given = true
	r.node.view.Wrote(n.dir, e)
}

// undo removes what a failed registration made and no name leads to. Sources
// that have their name already stay, as with cp.
func (r *registration) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	var errs []error
	none := true
	objects := r.joined
	for _, n := range r.namings {
		if n.given {
			none = false
			continue
		}
		objects = append(objects, n.objects...)
		for _, dir := range n.dirs {
			errs = append(errs, r.node.catalog.DiscardTree(ctx, dir))
			r.remember(dir, nil)
		}
	}
	errs = append(errs, r.node.cache.ForgetInPlace(ctx, objects))
	sets := map[chunk.SetID]bool{}
	for _, j := range r.joins {
		sets[j.entry.Object.Set] = true
	}
	if none && len(r.namings) > 0 {
		sets[r.scan.set] = true
	}
	errs = append(errs, r.node.settle(ctx, sets))
	if err := errors.Join(errs...); err != nil {
		r.node.log.Warn("remains of a failed registration", "set", r.scan.set, "err", err)
	}
}

const undoTimeout = 10 * time.Second
