package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// maxAtOnce is the most files that one warm fetches side by side.
const maxAtOnce = 256

// errRequest marks what is wrong with a request itself.
var errRequest = errors.New("bad request")

// askedFile is one file that a warm or a pin is about.
type askedFile struct {
	path   string // inside the mount
	from   int    // which of the paths asked for it lies under
	inside string // the rest of the path below that; "" for a file
	dir    meta.InodeID
	entry  meta.Entry
}

// found is what the paths of a request lead to.
type found struct {
	files  []askedFile // each once, ordered by path
	failed []*nodepb.WarmReply_File
}

// find looks paths up, and all that lies under them.
func (n *Node) find(ctx context.Context, paths [][]byte) (found, error) {
	var f found
	seen := map[string]bool{}
	for i, p := range paths {
		err := n.findOne(ctx, i, string(p), func(w askedFile) {
			if !seen[w.path] {
				seen[w.path] = true
				f.files = append(f.files, w)
			}
		})
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		if err != nil {
			f.failed = append(f.failed, &nodepb.WarmReply_File{
				Path: p, From: int32(i), Error: err.Error(), NotFound: errors.Is(err, meta.ErrNotFound),
			})
		}
	}
	slices.SortFunc(f.files, func(a, b askedFile) int { return strings.Compare(a.path, b.path) })
	return f, nil
}

func (n *Node) findOne(ctx context.Context, from int, p string, add func(askedFile)) error {
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return err
	}
	switch at.entry.Kind {
	case meta.KindSymlink:
		return fmt.Errorf("%q is a symlink to %q; name what it leads to", "/"+at.path, at.entry.Target)
	case meta.KindFile:
		add(askedFile{at.path, from, "", at.dir, at.entry})
		return nil
	}
	dirs := map[string]meta.InodeID{"": at.entry.Inode} // by the path below at
	return walk(ctx, n.view, at.entry.Inode, "", func(p string, e meta.Entry) error {
		switch e.Kind {
		case meta.KindDir:
			dirs[p] = e.Inode
		case meta.KindFile:
			above, _, _ := cutLast(p)
			add(askedFile{strings.TrimPrefix(at.path+"/"+p, "/"), from, p, dirs[above], e})
		}
		return nil
	})
}

// cutLast cuts the last name off a path.
func cutLast(p string) (above, name string, deep bool) {
	i := strings.LastIndexByte(p, '/')
	if i < 0 {
		return "", p, false
	}
	return p[:i], p[i+1:], true
}

// share returns the part of the files that one of many nodes takes: it depends
// on nothing but their paths.
func share(files []askedFile, rank, world int) []askedFile {
	if world <= 1 {
		return files
	}
	var mine []askedFile
	for i := rank; i < len(files); i += world {
		mine = append(mine, files[i])
	}
	return mine
}

func checkWarm(r *nodepb.WarmRequest) error {
	switch w, rank := r.GetWorldSize(), r.GetRank(); {
	case len(r.GetPaths()) == 0:
		return fmt.Errorf("%w: no path", errRequest)
	case w < 0 || w == 0 && rank != 0 || rank < 0 || w > 0 && rank >= w:
		return fmt.Errorf("%w: rank %d of %d", errRequest, rank, w)
	case r.GetConcurrency() < 0 || r.GetConcurrency() > maxAtOnce:
		return fmt.Errorf("%w: %d files at once, of at most %d", errRequest, r.GetConcurrency(), maxAtOnce)
	}
	return nil
}

// warm brings files here. What fails is told, and does not end it.
func (n *Node) warm(ctx context.Context, r *nodepb.WarmRequest, tell func(*nodepb.WarmReply) error) error {
	if err := checkWarm(r); err != nil {
		return err
	}
	f, err := n.find(ctx, r.GetPaths())
	if err != nil {
		return err
	}
	files := share(f.files, int(r.GetRank()), int(r.GetWorldSize()))
	g := &getting{progress: &nodepb.Progress{}}
	for _, w := range files {
		g.add(w.path, w.entry)
	}
	if err := n.fits(ctx, g); err != nil {
		return err
	}
	if r.GetPin() {
		if err := n.cache.Pin(ctx, pinsOf(files)); err != nil {
			return err
		}
	}
	w := &warming{
		node: n, verify: r.GetVerify(), tell: tell, bytes: make([]int64, len(files)),
		reply: &nodepb.WarmReply{FilesTotal: int64(len(files) + len(f.failed)), BytesTotal: g.progress.BytesTotal},
	}
	for _, bad := range f.failed {
		if err := w.ended(bad); err != nil {
			return err
		}
	}
	return w.run(ctx, files, int(r.GetConcurrency()))
}

// warming is one warm under way.
type warming struct {
	node   *Node
	verify bool
	tell   func(*nodepb.WarmReply) error // not called concurrently

	mu    sync.Mutex // held while tell is called
	reply *nodepb.WarmReply
	bytes []int64 // of each file, in reply
	told  time.Time
}

// run fetches the files, until all are here or have failed. An error says that
// nobody listens any more, or that ctx has ended.
func (w *warming) run(ctx context.Context, files []askedFile, atOnce int) error {
	if atOnce == 0 {
		atOnce = getAtOnce
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, f := range files {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error {
			err := w.one(gctx, i, f)
			if gctx.Err() != nil {
				return context.Cause(gctx)
			}
			out := &nodepb.WarmReply_File{Path: []byte(f.path), From: int32(f.from), Inside: []byte(f.inside), Size: f.entry.Size}
			if err != nil {
				out.Error = err.Error()
			} else if err := w.have(i, f.entry.Size, false); err != nil {
				return err
			}
			return w.ended(out)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply.Done, w.reply.File = true, nil
	return w.tell(w.reply)
}

// one fetches a file, and verifies it. One that lies badly on the disk is
// fetched once more.
func (w *warming) one(ctx context.Context, i int, f askedFile) error {
	if f.entry.Size == 0 {
		return nil
	}
	for again := false; ; again = true {
		err := w.node.getOne(ctx, f.entry, func(have int64) error { return w.have(i, have, true) })
		if err != nil || !w.verify {
			return err
		}
		if err = w.node.verify(ctx, f.entry.Object); err == nil || again || !errors.Is(err, chunk.ErrCorrupt) {
			return err
		}
	}
}

// have notes how much of a file is here.
func (w *warming) have(i int, bytes int64, tell bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply.Bytes += bytes - w.bytes[i]
	w.bytes[i] = bytes
	now := time.Now()
	if !tell || now.Sub(w.told) < tellPause {
		return nil
	}
	w.told, w.reply.File = now, nil
	return w.tell(w.reply)
}

// ended tells of a file that is done or has failed.
func (w *warming) ended(f *nodepb.WarmReply_File) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reply.Files++
	if f.Error != "" {
		w.reply.Failed++
	}
	w.reply.File = f
	return w.tell(w.reply)
}

// verify compares all of an object on the disk with its checksums. An object of
// the cache that differs has been removed then: chunk.ErrCorrupt.
func (n *Node) verify(ctx context.Context, o chunk.Object) error {
	info, ok := n.cache.Stat(o.ID)
	if ok && !info.InPlace {
		if err := n.cache.Flush(ctx, o.ID); err != nil && !errors.Is(err, chunk.ErrNotHeld) {
			return err
		}
	}
	if f, err := n.cache.Open(ctx, o); err == nil {
		err := forgetPages(f.Reader())
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	for block := range o.Blocks() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := n.cache.Recheck(ctx, o.ID, block)
		if err != nil && !(ok && info.InPlace && errors.Is(err, chunk.ErrNotHeld)) { // nobody has asked for it yet
			return fmt.Errorf("verify: %w", err)
		}
	}
	return nil
}

// forgetPages has a file read from the disk the next time. Pages that somebody
// has mapped stay.
func forgetPages(f *os.File) error {
	if f == nil {
		return nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED) })
	return errors.Join(err, failed)
}

// pinsOf says what to pin so that files stay here.
func pinsOf(files []askedFile) []cache.Pin {
	pins := make([]cache.Pin, 0, len(files))
	for _, w := range files {
		if w.entry.Size > 0 {
			pins = append(pins, cache.Pin{Object: w.entry.Object.ID, Note: []byte(noteOf(w.dir, w.entry.Name))})
		}
	}
	return pins
}
