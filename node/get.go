package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

const (
	// getAtOnce is how many files of one get are fetched side by side: one
	// large file fills a link alone, many small ones wait for answers.
	getAtOnce = 8
	// tellPause is the least time between two words on how far a get is.
	tellPause = 100 * time.Millisecond
)

// get brings all of a file, or of every file under a directory, to this
// machine, some files at once; each is fetched from many peers.
func (n *Node) get(ctx context.Context, p string, tell func(*nodepb.Progress) error) error {
	at, err := resolve(ctx, n.view, p)
	if err != nil {
		return err
	}
	if at.entry.Kind == meta.KindSymlink {
		return fmt.Errorf("%q is a symlink to %q; get what it leads to", "/"+at.path, at.entry.Target)
	}
	g := &getting{fetch: n.getOne, tell: tell, progress: &nodepb.Progress{}}
	err = walkFiles(ctx, n.view, at, func(p string, e meta.Entry) error {
		g.add(p, e)
		return nil
	})
	if err != nil {
		return err
	}
	if err := n.fits(ctx, g); err != nil {
		return err
	}
	return g.run(ctx)
}

// fits refuses at once what the cache cannot hold, whatever it gave up for it.
// chunk.ErrNoSpace.
func (n *Node) fits(ctx context.Context, g *getting) error {
	total, one, err := n.cache.Room(ctx)
	if err != nil {
		return err
	}
	var need, here int64
	for i, e := range g.files {
		if e.Size == 0 {
			continue
		}
		info, ok := n.cache.Stat(e.Object.ID)
		if ok && info.Complete && (info.InPlace || info.Keeper) {
			continue
		}
		missing := e.Size
		if ok { // what is here is not to be given up for the rest
			missing -= info.LocalBytes
			here += info.LocalBytes
		}
		if e.Object.Sparse && missing > 0 {
			missing -= n.zeroBytes(ctx, e)
		}
		if missing > one {
			return fmt.Errorf("%q needs %d bytes of the cache, which has room for %d: %w; give the node more (--cache-size, --free-space), or read the file without keeping it, as 'p2pfs get -o' does", "/"+g.paths[i], missing, one, chunk.ErrNoSpace)
		}
		need += max(missing, 0)
	}
	if room := max(total-here, 0); need > room {
		return fmt.Errorf("these files need %d more bytes of the cache, which has room for %d beside what is here of them: %w; give the node more (--cache-size, --free-space), or get fewer of them", need, room, chunk.ErrNoSpace)
	}
	return nil
}

// zeroBytes returns how much of a file takes no room; 0 if nobody knows.
func (n *Node) zeroBytes(ctx context.Context, e meta.Entry) int64 {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.MetaTimeout)
	defer cancel()
	zeros, err := n.catalog.Zeros(ctx, e.Object)
	if err != nil {
		return 0
	}
	return int64(zeros.Count()) * e.Object.BlockSize
}

// getOne fetches one file. have is told how many bytes are here, perhaps from
// several goroutines; its error ends the fetch.
func (n *Node) getOne(ctx context.Context, e meta.Entry, have func(int64) error) error {
	r, err := n.engine.Open(ctx, e.Object)
	if err != nil {
		return err
	}
	defer r.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = r.FetchAll(ctx, func(bytes, _ int64) {
		if err := have(bytes); err != nil {
			cancel(err)
		}
	})
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}

// getting is one get under way.
type getting struct {
	fetch func(ctx context.Context, e meta.Entry, have func(int64) error) error
	tell  func(*nodepb.Progress) error // not called concurrently
	files []meta.Entry
	paths []string

	mu       sync.Mutex // held while tell is called
	progress *nodepb.Progress
	told     time.Time
}

// add adds a file, before run.
func (g *getting) add(path string, e meta.Entry) {
	g.files, g.paths = append(g.files, e), append(g.paths, path)
	g.progress.FilesTotal++
	g.progress.BytesTotal += e.Size
}

// run fetches the files until all are here, or one fails, which ends the rest.
func (g *getting) run(ctx context.Context) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(getAtOnce)
	for i := range g.files {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error {
			if err := g.file(gctx, g.paths[i], g.files[i]); err != nil {
				return fmt.Errorf("get %q: %w", "/"+g.paths[i], err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	g.progress.Done = true
	return g.tell(g.progress)
}

func (g *getting) file(ctx context.Context, path string, e meta.Entry) error {
	counted := int64(0) // of this file, in progress; guarded by g.mu
	count := func(bytes int64) {
		g.progress.Path = []byte(path)
		g.progress.Bytes += bytes - counted
		counted = bytes
	}
	if e.Size > 0 {
		err := g.fetch(ctx, e, func(have int64) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			count(have)
			return g.tellNow()
		})
		if err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	count(e.Size)
	g.progress.Files++
	return nil
}

// tellNow tells how far the get is, unless that was told just before. g.mu is
// held.
func (g *getting) tellNow() error {
	now := time.Now()
	if now.Sub(g.told) < tellPause {
		return nil
	}
	g.told = now
	return g.tell(g.progress)
}
