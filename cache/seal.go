package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/p2pfs/p2pfs/chunk"
	"golang.org/x/sys/unix"
)

// publication is one publish of a staged file. Its mu and noteMu are held.
type publication struct {
	*Staged
	obj     chunk.Object
	table   *table
	zeros   chunk.Bitmap
	mapf    *os.File // that the map is in; the note file, if they share it
	mapUsed int64
	met     bool // the journal's expect was
}

// end takes back what was said to the journal, and closes the map.
func (p *publication) end() {
	if !p.met {
		p.r.journal.forget()
	}
	if p.mapf != nil && p.mapf != p.noteFile {
		p.mapf.Close()
	}
}

// commit makes files, the note, and names in the staging directory and dirs
// durable.
func (p *publication) commit(files []*os.File, dirs ...string) error {
	if p.met {
		p.r.journal.expect()
	}
	p.met = true
	return p.commitWithNote(files, dirs...)
}

// empty ends the publish of a file without bytes.
func (p *publication) empty() (Sealed, error) {
	if err := p.commit(nil); err != nil {
		return Sealed{}, err
	}
	p.c.step("note")
	from := p.r.stagedPath(p.id, ".data")
	to := from + ".tmp"
	if err := rename(from, to); err != nil {
		return Sealed{}, err
	}
	p.c.step("renamed")
	if err := p.commit(nil); err != nil {
		return Sealed{}, errors.Join(err, rename(to, from))
	}
	p.c.step("committed")
	p.spent.Store(true)
	p.c.staged.published(p.id)
	p.removeBase()
	os.Remove(to)
	p.book(0, 0)
	return Sealed{Object: p.obj, Zeros: chunk.NewBitmap(0)}, nil
}

// removeBase removes the base map, which says nothing of a published file. One
// that is left by a death here goes at the next start.
func (p *publication) removeBase() {
	if p.base != nil {
		os.Remove(p.r.stagedPath(p.id, ".base"))
	}
}

// sum completes the sums and makes blocks of zeros holes.
func (p *publication) sum() error {
	n := p.obj.Blocks()
	p.zeros = chunk.NewBitmap(n)
	p.table = newTable(p.obj, p.c.zeros)
	var filled int64
	for b := range n {
		span := p.obj.Block(b)
		sum, zero, ok := p.Staged.sums.block(p.unit, span, p.c.zeros)
		if !ok {
			var err error
			if sum, zero, err = p.readSum(span); err != nil {
				return fmt.Errorf("sum block %d: %w", b, err)
			}
		}
		g, bit := p.table.locate(b)
		g.sums[b%groupBlocks].Store(sum)
		g.have.Store(g.have.Load() | bit)
		g.synced.Store(g.synced.Load() | bit)
		if zero {
			p.zeros.Set(b)
			g.zero.Store(g.zero.Load() | bit)
			p.obj.Sparse = true
			continue
		}
		filled += roundUp(span.Len)
	}
	p.table.recount()
	p.table.obj = p.obj
	if p.charged > filled {
		return p.dig()
	}
	return nil
}

// dig gives back the room of zeros, and of what was allocated and never
// written.
func (p *publication) dig() error {
	for b := 0; b < p.obj.Blocks(); b++ {
		first := b
		for p.zeros.Has(b) {
			b++
		}
		if b == first {
			continue
		}
		off := p.obj.Block(first).Off
		if err := p.punch(off, p.obj.Block(b-1).End()-off); err != nil {
			return err
		}
	}
	return p.data.Truncate(p.obj.Size) // what lies behind the end goes
}

// sums returns the blocks' sums.
func (p *publication) sums() []uint32 {
	all := make([]uint32, p.obj.Blocks())
	for b := range all {
		all[b], _ = p.table.Sum(b)
	}
	return all
}

// seal does steps 2 to 7.
func (p *publication) seal() error {
	id := p.obj.ID
	if err := p.c.reserveID(id); err != nil {
		return err
	}
	if err := p.place(); err != nil {
		p.c.unreserveID(id)
		p.r.unlinkMap(id)
		return err
	}
	p.spent.Store(true)
	p.c.staged.published(p.id)
	p.removeBase()
	p.enter()
	return nil
}

// place makes the map, renames and commits.
func (p *publication) place() error {
	if err := p.putMap(); err != nil {
		return err
	}
	p.c.step("map")
	files := []*os.File{p.data}
	if p.mapf != p.noteFile {
		files = append(files, p.mapf)
	}
	if p.noteSolid {
		if err := p.commit(files); err != nil {
			return err
		}
		p.c.step("flushed")
	}
	if err := p.data.Chmod(0o444); err != nil {
		return err
	}
	p.c.step("sealed")
	from, to := p.r.stagedPath(p.id, ".data"), p.r.path(p.obj.ID, ".data")
	if err := rename(from, to); err != nil {
		return err
	}
	p.c.step("renamed")
	if err := p.commit(files, filepath.Dir(to)); err != nil {
		return errors.Join(err, rename(to, from))
	}
	p.c.step("committed")
	p.vouch()
	return nil
}

// vouch says in the map that every block is durable. Where that is lost, or
// fails, they are looked at once more.
func (p *publication) vouch() {
	_, err := p.c.writeAt(p.mapf, p.encodeMap(true), 0)
	if err == nil && p.mapf != p.noteFile {
		err = p.r.journal.flushAhead(p.mapf) // to look at them takes long
	}
	if err != nil {
		p.c.log.Warn("the map of a published file is not up to date", "object", p.obj.ID, "err", err)
	}
}

// encodeMap returns the object's map, whose every block is present; synced says
// that they are durable.
func (p *publication) encodeMap(synced bool) []byte {
	b := make([]byte, 0, mapSize(p.obj))
	b = append(b, header{kind: kindObject, obj: p.obj, sealed: true, kept: true, boot: p.c.boot}.encode()...)
	for i := range p.table.groups {
		w := p.table.groups[i].bits()
		if !synced {
			w.synced = 0
		}
		b = b[:len(b)+sectorSize]
		p.table.encodeGroup(b[len(b)-sectorSize:], i, w)
	}
	return b
}

// putMap makes the object's map. The blocks are said to be durable once they
// are: a map may reach the disk before they do.
func (p *publication) putMap() error {
	b := p.encodeMap(false)
	shared, err := p.shareMap(b)
	switch {
	case err != nil:
		return err
	case shared:
		p.mapf = p.noteFile
	default:
		if p.mapf, err = p.makeMap(b); err != nil {
			return err
		}
	}
	p.mapUsed = blocksOf(p.mapf)
	return nil
}

// shareMap writes a small map into the note file, and gives that the map's name
// as well: files are dear to make, to flush and to remove. It reports whether
// it did.
func (p *publication) shareMap(b []byte) (bool, error) {
	if p.noteFile == nil || len(b) > noteAt {
		return false, nil
	}
	if _, err := p.c.writeAt(p.noteFile, b, 0); err != nil {
		return false, err
	}
	p.noteLoose = true
	err := unix.Link(p.r.stagedPath(p.id, ".note"), p.r.path(p.obj.ID, ".map"))
	if errors.Is(err, fs.ErrExist) {
		return false, err
	}
	return err == nil, nil // some file systems give a file one name only
}

// makeMap writes the map into a file of its own.
func (p *publication) makeMap(b []byte) (*os.File, error) {
	path := p.r.path(p.obj.ID, ".map")
	if err := p.c.reserve(p.r, roundUp(int64(len(b)))); err != nil {
		return nil, err
	}
	defer p.c.unreserve(p.r, roundUp(int64(len(b)))) // enter counts it
	f, err := p.c.openFD(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	err = p.retried(roundUp(int64(len(b))), func() error {
		_, err := p.c.writeAt(f, b, 0)
		return err
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// enter makes the object one of the cache's.
func (p *publication) enter() {
	var st unix.Stat_t
	used := p.charged
	if unix.Fstat(int(p.data.Fd()), &st) == nil {
		used = st.Blocks * 512
	}
	used += p.mapUsed
	p.book(0, 0)
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[p.obj.ID]
	e.root, e.lastUse = p.r, c.cfg.Now()
	c.account(e, used)
	c.learn(e, p.obj, p.table, true)
	close(e.busy)
	e.busy = nil
}

// reserveID makes an entry for an object that is about to be here; others wait.
func (c *Cache) reserveID(id chunk.ObjectID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[id] != nil {
		return fmt.Errorf("object %s is here: %w", id.Short(), fs.ErrExist)
	}
	c.entries[id] = &entry{obj: chunk.Object{ID: id}, busy: make(chan struct{})}
	return nil
}

func (c *Cache) unreserveID(id chunk.ObjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	close(e.busy)
	e.busy = nil
	c.forget(e)
}

// unlinkMap removes what a failed publish made of an object.
func (r *root) unlinkMap(id chunk.ObjectID) { os.Remove(r.path(id, ".map")) }
