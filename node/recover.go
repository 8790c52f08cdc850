package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/staging"
)

// recovery is one call of recover.
type recovery struct {
	node   *Node
	caller caller
	req    *nodepb.RecoverRequest
	tell   func(*nodepb.RecoverReply) error
	paths  map[meta.InodeID]string // of directories, as far as they were asked for
}

// lostFile is a file that waits, and where it belongs.
type lostFile struct {
	staging.Lost
	path string // inside the mount; as far as it is known
}

func (n *Node) recover(ctx context.Context, c caller, req *nodepb.RecoverRequest, tell func(*nodepb.RecoverReply) error) error {
	r := &recovery{node: n, caller: c, req: req, tell: tell, paths: map[meta.InodeID]string{meta.RootDir: ""}}
	all := r.all(ctx)
	if req.Action == nodepb.RecoverRequest_LIST {
		for _, l := range all {
			if err := tell(l.reply(nil)); err != nil {
				return err
			}
		}
		return nil
	}
	if n.cfg.ReadOnly && req.Action == nodepb.RecoverRequest_PUBLISH {
		return errors.New("the node is mounted read-only; mount without --read-only to publish")
	}
	chosen, err := r.choose(all)
	if err != nil {
		return err
	}
	var failed int
	for _, l := range chosen {
		err := r.one(ctx, &l)
		if err != nil {
			failed++
		}
		if err := tell(l.reply(err)); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d files were not recovered", failed, len(chosen))
	}
	return nil
}

// reply describes the file, and why it was not recovered.
func (l lostFile) reply(err error) *nodepb.RecoverReply {
	out := &nodepb.RecoverReply{
		Id: fmt.Sprintf("%016x", l.ID), Path: []byte(l.path), Size: l.Size, State: l.State, Reason: l.Reason,
	}
	if !l.When.IsZero() {
		out.WhenUnixNs = l.When.UnixNano()
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// all returns the files that wait, with their paths.
func (r *recovery) all(ctx context.Context) []lostFile {
	var out []lostFile
	for _, l := range r.node.staging.Load().Lost(ctx) {
		f := lostFile{Lost: l}
		if l.At.Dir != 0 {
			f.path = path.Join(r.dirPath(ctx, l.At.Dir, 0), l.At.Name)
		}
		out = append(out, f)
	}
	return out
}

// maxDepth bounds the way up to the root: records may be wrong.
const maxDepth = 256

// dirPath returns where a directory is inside the mount. What cannot be found
// out is shown as its id, which no path leads to.
func (r *recovery) dirPath(ctx context.Context, dir meta.InodeID, depth int) string {
	if p, ok := r.paths[dir]; ok {
		return p
	}
	p := fmt.Sprintf("?%016x", uint64(dir))
	if name, parent, err := r.nameOf(ctx, dir); err == nil && depth < maxDepth {
		p = path.Join(r.dirPath(ctx, parent, depth+1), name)
	}
	r.paths[dir] = p
	return p
}

// nameOf returns the name of a directory, and the directory it is in.
func (r *recovery) nameOf(ctx context.Context, dir meta.InodeID) (string, meta.InodeID, error) {
	info, err := r.node.catalog.Dir(ctx, dir)
	if err != nil {
		return "", 0, err
	}
	entries, err := r.node.view.List(ctx, info.Parent)
	if err != nil {
		return "", 0, err
	}
	for _, e := range entries {
		if e.Kind == meta.KindDir && e.Inode == dir {
			return e.Name, info.Parent, nil
		}
	}
	return "", 0, fmt.Errorf("directory %016x has no name: %w", uint64(dir), meta.ErrNotFound)
}

// choose returns the files that are meant. A file that was never closed is only
// published when that is asked for: nobody knows whether it was whole.
func (r *recovery) choose(all []lostFile) ([]lostFile, error) {
	publish := r.req.Action == nodepb.RecoverRequest_PUBLISH
	if r.req.All {
		var out []lostFile
		for _, l := range all {
			if l.State == staging.LostUnreadable || publish && l.State == staging.LostOpen && !r.req.Unclosed {
				continue
			}
			out = append(out, l)
		}
		return out, nil
	}
	var out []lostFile
	for _, name := range r.req.Names {
		l, err := pick(all, string(name))
		if err == nil && publish && l.State == staging.LostOpen && !r.req.Unclosed {
			err = fmt.Errorf("%q was not closed, so that it may not be whole; add --unclosed to publish what was written, or copy it with --out", "/"+l.path)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	switch {
	case len(out) == 0:
		return nil, errors.New("nothing to recover was named")
	case len(out) > 1 && r.req.To != nil:
		return nil, errors.New("--to takes one file")
	case len(out) > 1 && r.req.Action == nodepb.RecoverRequest_COPY:
		return nil, errors.New("--out takes one file")
	}
	return out, nil
}

// pick returns the file that a path or an id means.
func pick(all []lostFile, name string) (lostFile, error) {
	var found []lostFile
	for _, l := range all {
		if fmt.Sprintf("%016x", l.ID) == name || l.path != "" && l.path == path.Clean(name) {
			found = append(found, l)
		}
	}
	switch len(found) {
	case 0:
		return lostFile{}, fmt.Errorf("%q: nothing of that name waits to be recovered: %w", "/"+name, meta.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return lostFile{}, fmt.Errorf("%d files were written under %q; say which by its id (p2pfs recover lists them)", len(found), "/"+name)
}

// one does with a file what was asked for. A file that is published elsewhere
// has its new path then.
func (r *recovery) one(ctx context.Context, l *lostFile) error {
	a := r.node.staging.Load()
	switch r.req.Action {
	case nodepb.RecoverRequest_DISCARD:
		return a.Discard(ctx, l.ID)
	case nodepb.RecoverRequest_COPY:
		return r.copyOut(ctx, *l)
	}
	var to meta.Place
	if r.req.To != nil {
		var err error
		if to, err = r.target(ctx, *l); err != nil {
			return err
		}
	}
	_, err := a.Recover(ctx, l.ID, to, r.req.Replace)
	if err == nil && r.req.To != nil {
		l.path = path.Join(r.dirPath(ctx, to.Dir, 0), to.Name)
	}
	if errors.Is(err, meta.ErrExist) {
		return fmt.Errorf("%w; publish it under another name with --to, or over that one with --replace", err)
	}
	if errors.Is(err, meta.ErrNotFound) {
		return fmt.Errorf("%w; publish it elsewhere with --to", err)
	}
	return err
}

// target finds where --to leads, and makes the directories that are missing:
// into a directory the file goes under its own name.
func (r *recovery) target(ctx context.Context, l lostFile) (meta.Place, error) {
	n := r.node
	at, err := resolve(ctx, n.view, string(r.req.To))
	switch {
	case err == nil && at.entry.Kind == meta.KindDir && l.At.Name != "":
		return meta.Place{Dir: at.entry.Inode, Name: l.At.Name}, nil
	case err == nil && at.dir != 0:
		return meta.Place{Dir: at.dir, Name: at.entry.Name}, nil
	case err == nil:
		return meta.Place{}, errors.New("the mountpoint itself cannot be the name of a file")
	case !errors.Is(err, meta.ErrNotFound):
		return meta.Place{}, err
	}
	parts, err := splitPath(string(r.req.To))
	if err != nil {
		return meta.Place{}, err
	}
	dir, err := n.mkdirAll(ctx, parts[:len(parts)-1])
	return meta.Place{Dir: dir, Name: parts[len(parts)-1]}, err
}

// copyOut writes a file's bytes to a new local file, with the rights of the
// caller.
func (r *recovery) copyOut(ctx context.Context, l lostFile) (err error) {
	out := string(r.req.Out)
	if !filepath.IsAbs(out) {
		return fmt.Errorf("%q is not an absolute path", out)
	}
	var f *os.File
	err = r.caller.do(func() (err error) {
		f, err = os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := r.node.staging.Load().CopyOut(ctx, l.ID, f); err != nil {
		return fmt.Errorf("copy to %s: %w", out, err)
	}
	return nil
}
