package local

import (
	"bytes"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// change is what is to be written about one directory.
type change struct {
	whole   bool // entries are all of the directory, as of version
	forget  bool // it is not wholly known
	version uint64
	entries []meta.Entry
	names   map[string]*meta.Entry // after that; nil: gone
	records map[string][]byte      // what trim left of names
	index   map[string]int         // of entries; guarded by Table.mu
}

// Put implements meta.LocalTable.
func (t *Table) Put(dir meta.InodeID, e meta.Entry) {
	t.note(dir, 1, func(c *change) { c.names[e.Name] = &e })
}

// Remove implements meta.LocalTable.
func (t *Table) Remove(dir meta.InodeID, name string) {
	t.note(dir, 1, func(c *change) { c.names[name] = nil })
}

// PutDir implements meta.LocalTable.
func (t *Table) PutDir(dir meta.InodeID, version uint64, entries []meta.Entry) {
	t.note(dir, len(entries), func(c *change) {
		*c = change{whole: true, version: version, entries: entries, names: make(map[string]*meta.Entry)}
	})
}

// ForgetDir implements meta.LocalTable.
func (t *Table) ForgetDir(dir meta.InodeID) {
	t.note(dir, 1, func(c *change) { c.forget = true })
}

func write(dirs *bolt.Bucket, batch map[meta.InodeID]*change) error {
	for id, c := range batch {
		if err := writeDir(dirs, dirKey(id), c); err != nil {
			return fmt.Errorf("write directory %016x: %w", uint64(id), err)
		}
	}
	return nil
}

func writeDir(dirs *bolt.Bucket, key []byte, c *change) error {
	b, err := dirs.CreateBucketIfNotExists(key)
	if err != nil {
		return err
	}
	version := c.version
	if c.whole && !sameVersion(b, c.version) {
		if b, err = rewriteDir(dirs, key, c.entries); err != nil {
			return err
		}
	}
	for name, rec := range c.records {
		version = 0 // a name changed: it is another one now, which we do not know
		if rec == nil {
			err = b.Delete([]byte(name))
		} else {
			err = b.Put([]byte(name), rec)
		}
		if err != nil {
			return err
		}
	}
	switch whole := b.Get(keyWhole) != nil; {
	case c.forget:
		return b.Delete(keyWhole)
	case c.whole, whole && len(c.records) > 0:
		return b.Put(keyWhole, binary.LittleEndian.AppendUint64(nil, version))
	}
	return nil
}

// rewriteDir writes all of a directory in place of what there is of it.
func rewriteDir(dirs *bolt.Bucket, key []byte, entries []meta.Entry) (*bolt.Bucket, error) {
	if err := dirs.DeleteBucket(key); err != nil {
		return nil, err
	}
	b, err := dirs.CreateBucket(key)
	if err != nil {
		return nil, err
	}
	b.FillPercent = 0.9 // they come in order
	for i := range entries {
		rec, err := record(&entries[i])
		if err != nil {
			return nil, err
		}
		if err := b.Put([]byte(entries[i].Name), rec); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// trim takes from a batch what the table holds already: names are read far more
// often than they change, and each write is a sync of the disk.
func trim(dirs *bolt.Bucket, batch map[meta.InodeID]*change) error {
	for id, c := range batch {
		b := dirs.Bucket(dirKey(id))
		c.records = make(map[string][]byte, len(c.names))
		for name, e := range c.names {
			var old, rec []byte
			if b != nil && !c.whole {
				old = b.Get([]byte(name))
			}
			if e != nil {
				var err error
				if rec, err = record(e); err != nil {
					return err
				}
			}
			if c.whole || !bytes.Equal(old, rec) {
				c.records[name] = rec
			}
		}
		known := b != nil && b.Get(keyWhole) != nil
		switch {
		case len(c.records) > 0:
		case c.forget && known, c.whole && !(known && sameVersion(b, c.version)):
		default:
			delete(batch, id)
		}
	}
	return nil
}

// sameVersion reports whether the table holds all of a directory as of that
// very version.
func sameVersion(b *bolt.Bucket, version uint64) bool {
	v := b.Get(keyWhole)
	return len(v) == 8 && version != 0 && binary.LittleEndian.Uint64(v) == version
}

func dirKey(id meta.InodeID) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// record returns what is kept of an entry.
func record(e *meta.Entry) ([]byte, error) {
	rec, err := meta.MarshalEntry(*e, nil)
	if err != nil {
		return nil, err
	}
	return append(binary.LittleEndian.AppendUint64(nil, e.Version), rec...), nil
}

// parseEntry reads what record made.
func parseEntry(name string, b []byte) (meta.Entry, error) {
	if len(b) < 8 {
		return meta.Entry{}, fmt.Errorf("read entry %q: %w", name, meta.ErrFormat)
	}
	// Records written here state their sizes; the default is never used.
	return meta.UnmarshalEntry(name, b[8:], binary.LittleEndian.Uint64(b), chunk.DefaultChunkSize)
}

// Entry implements meta.LocalTable. It does not wait for what is being written.
func (t *Table) Entry(dir meta.InodeID, name string) (e meta.Entry, ok bool) {
	if meta.CheckName(name) != nil {
		return e, false
	}
	if e, ok, known := t.unwritten(dir, name); known {
		return e, ok
	}
	_ = t.guard(func() error {
		return t.db.View(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketDirs).Bucket(dirKey(dir))
			if b == nil {
				return nil
			}
			if rec := b.Get([]byte(name)); rec != nil {
				var err error
				e, err = parseEntry(name, rec)
				ok = err == nil
			}
			return nil
		})
	})
	return e, ok
}

// List implements meta.LocalTable. It waits for what is being written.
func (t *Table) List(dir meta.InodeID) (entries []meta.Entry, ok bool) {
	t.flush()
	err := t.guard(func() error {
		return t.db.View(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketDirs).Bucket(dirKey(dir))
			if b == nil || b.Get(keyWhole) == nil {
				return nil
			}
			ok = true
			return b.ForEach(func(k, v []byte) error {
				if len(k) == 1 && k[0] == 0 {
					return nil
				}
				e, err := parseEntry(string(k), v)
				if err == nil {
					entries = append(entries, e)
				}
				return err
			})
		})
	})
	if err != nil {
		return nil, false
	}
	return entries, ok
}
