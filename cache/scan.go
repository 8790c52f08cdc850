package cache

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// readNames learns which objects have files on a root, by name alone, and
// removes what is left of deaths half way: maps without data, data without
// maps, temporary files.
func (c *Cache) readNames(r *root) error {
	tmp, _ := filepath.Glob(filepath.Join(r.dir, "*.tmp"))
	for _, path := range tmp {
		os.Remove(path)
	}
	dirs, err := os.ReadDir(filepath.Join(r.dir, "objects"))
	if err != nil {
		return fmt.Errorf("read cache root: %w", err)
	}
	for _, d := range dirs {
		if err := c.readDir(r, filepath.Join(r.dir, "objects", d.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cache) readDir(r *root, dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("read cache root: %w", err)
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return fmt.Errorf("read cache root: %w", err)
	}
	const hasMap, hasData = 1, 2
	found := make(map[chunk.ObjectID]int, len(names)/2)
	for _, name := range names {
		base, suffix, _ := strings.Cut(name, ".")
		id, err := chunk.ParseObjectID(base)
		switch {
		case err != nil || strings.HasSuffix(name, ".tmp"):
			os.Remove(filepath.Join(dir, name))
		case suffix == "map":
			found[id] |= hasMap
		case suffix == "data":
			found[id] |= hasData
		}
	}
	for id, has := range found {
		if has != hasMap|hasData || c.entries[id] != nil || filepath.Base(dir) != id.String()[:2] {
			c.log.Info("stray object file removed", "object", id, "root", r.dir)
			r.unlink(id)
			continue
		}
		c.entries[id] = &entry{root: r, obj: chunk.Object{ID: id}}
	}
	return nil
}

// glance is what a map and its data file say of an object without opening it
// for use.
type glance struct {
	obj     chunk.Object
	table   *table
	kept    bool
	used    int64
	lastUse time.Time
}

// scan reads what is not known yet of the objects here: facts, bytes, and when
// they were last used. It returns when all is known; only the first of those
// who call at once reads.
func (c *Cache) scan(ctx context.Context) error {
	c.scanMu.Lock()
	defer c.scanMu.Unlock()
	c.mu.Lock()
	if c.scanned {
		c.mu.Unlock()
		return nil
	}
	unknown := make([]*entry, 0, len(c.entries))
	for _, e := range c.entries {
		if !e.known {
			unknown = append(unknown, e)
		}
	}
	c.mu.Unlock()
	// In the order of the directories, which is near that on disk.
	sort.Slice(unknown, func(i, j int) bool {
		return string(unknown[i].obj.ID[:]) < string(unknown[j].obj.ID[:])
	})
	for _, e := range unknown {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("scan cache: %w", err)
		}
		c.examine(ctx, e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order()
	c.scanned = true
	return nil
}

// examine reads the map of an entry unless somebody has opened it meanwhile.
func (c *Cache) examine(ctx context.Context, e *entry) {
	c.mu.Lock()
	if e.known || e.busy != nil || e.root == nil {
		c.mu.Unlock()
		return
	}
	e.busy = make(chan struct{})
	id, r := e.obj.ID, e.root
	c.mu.Unlock()
	g, err := c.look(r, id)
	bad := unbelievable(err)
	if bad {
		err = c.disbelieve(r, id, err)
	}
	if err != nil {
		c.log.Warn("object file not examined", "object", id, "root", r.dir, "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(e.busy)
	e.busy = nil
	switch {
	case bad:
		c.forget(e)
	case err == nil:
		e.lastUse = g.lastUse
		c.account(e, g.used)
		c.learn(e, g.obj, g.table, g.kept)
	}
}

// look reads the map of an object that nobody uses.
func (c *Cache) look(r *root, id chunk.ObjectID) (glance, error) {
	// Not os.Open, which asks the poller about every one of 100,000 files.
	path := r.path(id, ".map")
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return glance{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	h, t, err := c.readMap(f, id)
	if err != nil {
		return glance{}, err
	}
	var mst, dst unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &mst); err != nil {
		return glance{}, &fs.PathError{Op: "fstat", Path: path, Err: err}
	}
	path = r.path(id, ".data")
	if err := unix.Lstat(path, &dst); err != nil {
		return glance{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return glance{
		obj: h.obj, table: t, kept: h.kept, used: (mst.Blocks + dst.Blocks) * 512,
		lastUse: time.Unix(mst.Mtim.Unix()),
	}, nil
}

// order rebuilds the list of unused entries from their last uses. Cache.mu is
// held.
func (c *Cache) order() {
	var unused []*entry
	for _, e := range c.entries {
		e.inLRU = nil
		if e.known && !e.kept && !c.isPinned(e.obj.ID) && e.refs == 0 {
			unused = append(unused, e)
		}
	}
	sort.Slice(unused, func(i, j int) bool { return unused[i].lastUse.Before(unused[j].lastUse) })
	c.lru.Init()
	c.evictable = 0
	for _, e := range unused {
		e.inLRU = c.lru.PushBack(e)
		c.evictable += e.used
	}
}
