package cache

import (
	"container/list"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	bolt "go.etcd.io/bbolt"
)

const (
	dbName = "inplace.db"
	dbWait = 5 * time.Second // for a lock that only a stranger can hold
)

// Buckets of inplace.db: records by object, and an empty value for each
// set and object, so that a set's members are one range.
var (
	bucketObjects = []byte("objects")
	bucketMembers = []byte("members")
)

// places is the registered files: their records in a small database, and those
// in use in memory.
type places struct {
	c    *Cache
	root *root
	db   *bolt.DB

	mu     sync.Mutex
	closed bool
	live   map[chunk.ObjectID]*placed // in use, or idle
	idle   list.List                  // *placed, unused, longest first
	bySet  map[chunk.SetID]int        // registered files of each set
	total  int
}

// openPlaces opens the database on the root that has it, the first if none.
func openPlaces(c *Cache) (*places, error) {
	p := &places{c: c, live: make(map[chunk.ObjectID]*placed), bySet: make(map[chunk.SetID]int)}
	for _, r := range c.roots {
		if _, err := os.Lstat(filepath.Join(r.dir, dbName)); err != nil {
			continue
		}
		if p.root != nil {
			return nil, fmt.Errorf("open cache: %w: both %s and %s hold registered files: give one of them", ErrLayout, p.root.dir, r.dir)
		}
		p.root = r
	}
	if p.root == nil {
		p.root = c.roots[0]
	}
	path := filepath.Join(p.root.dir, dbName)
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: dbWait, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("open the table of registered files %s: %w", path, err)
	}
	p.db = db
	if err := p.load(); err != nil {
		db.Close()
		return nil, err
	}
	return p, nil
}

// load makes the buckets and counts the members of each set.
func (p *places) load() error {
	empty := false
	err := p.db.View(func(tx *bolt.Tx) error {
		m := tx.Bucket(bucketMembers)
		if m == nil {
			empty = true
			return nil
		}
		return m.ForEach(func(k, _ []byte) error {
			if len(k) != 32 {
				return fmt.Errorf("%w: key of %d bytes", errRecord, len(k))
			}
			p.bySet[chunk.SetID(k[:16])]++
			p.total++
			return nil
		})
	})
	if err == nil && empty {
		err = p.db.Update(func(tx *bolt.Tx) error {
			if _, err := tx.CreateBucketIfNotExists(bucketObjects); err != nil {
				return err
			}
			_, err := tx.CreateBucketIfNotExists(bucketMembers)
			return err
		})
		if err == nil {
			err = syncDir(p.root.dir)
		}
	}
	if err != nil {
		return fmt.Errorf("read the table of registered files %s: %w", p.db.Path(), err)
	}
	return nil
}

func memberKey(set chunk.SetID, id chunk.ObjectID) []byte {
	return append(append(make([]byte, 0, 32), set[:]...), id[:]...)
}

// find returns the record of a registered file.
func (p *places) find(id chunk.ObjectID) (r record, ok bool, err error) {
	if p.count() == 0 {
		return r, false, nil
	}
	err = p.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketObjects).Get(id[:])
		if b == nil {
			return nil
		}
		ok = true
		r, err = decodeRecord(b)
		return err
	})
	if err != nil {
		return r, false, fmt.Errorf("find registered file of object %s: %w", id.Short(), p.dbError(err))
	}
	return r, ok, nil
}

// count returns how many files are registered.
func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// hasSet reports whether a set has registered files.
func (p *places) hasSet(set chunk.SetID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bySet[set] > 0
}

// sets returns the sets that have registered files.
func (p *places) sets() []chunk.SetID {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]chunk.SetID, 0, len(p.bySet))
	for s := range p.bySet {
		all = append(all, s)
	}
	return all
}

// members returns the registered objects of a set.
func (p *places) members(set chunk.SetID) ([]chunk.ObjectID, error) {
	var ids []chunk.ObjectID
	err := p.db.View(func(tx *bolt.Tx) error {
		cur := tx.Bucket(bucketMembers).Cursor()
		for k, _ := cur.Seek(set[:]); len(k) == 32 && chunk.SetID(k[:16]) == set; k, _ = cur.Next() {
			ids = append(ids, chunk.ObjectID(k[16:]))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list registered files: %w", p.dbError(err))
	}
	return ids, nil
}

// each calls fn with every registered file until it returns false. It reads
// pages: fn may take its time, and change what is registered.
func (p *places) each(ctx context.Context, fn func(Info) bool) (more bool, err error) {
	const page = 1000
	var from []byte
	for {
		recs := make([]record, 0, page)
		err := p.db.View(func(tx *bolt.Tx) error {
			cur := tx.Bucket(bucketObjects).Cursor()
			for k, v := cur.Seek(from); k != nil && len(recs) < page; k, v = cur.Next() {
				r, err := decodeRecord(v)
				if err != nil {
					return err
				}
				recs = append(recs, r)
			}
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("list registered files: %w", p.dbError(err))
		}
		for i := range recs {
			if err := ctx.Err(); err != nil {
				return false, fmt.Errorf("list registered files: %w", err)
			}
			if !fn(recs[i].info()) {
				return false, nil
			}
		}
		if len(recs) < page {
			return true, nil
		}
		last := recs[page-1].obj.ID
		from = append(append(from[:0], last[:]...), 0)
	}
}
