package journal

import (
	"bytes"
	"encoding/binary"
	"maps"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/meta"
)

// Dir is a directory that the journal knows of.
type Dir struct {
	ID meta.InodeID
	// Known: Parent and Way are. Else this node changed names in a directory
	// that it did not make, and has not looked up yet.
	Known  bool
	Parent meta.InodeID
	Way    meta.Offer // its name in Parent
	Self   meta.DirInfo
	Names  bool // the journal holds names in it
}

// Dirs returns every directory that the journal knows of, in no order. What
// was handed over before the call is seen.
func (j *Journal) Dirs() ([]Dir, error) {
	if err := j.Flush(); err != nil {
		return nil, err
	}
	var dirs []Dir
	index := map[meta.InodeID]int{}
	err := j.view(func(tx *bolt.Tx, epochs map[uint64]meta.Epoch) error {
		own := tx.Bucket(bucketSelf)
		err := tx.Bucket(bucketDirs).ForEach(func(k, v []byte) error {
			d, err := readDir(k, v, own, epochs)
			if err != nil {
				j.log.Warn("directory of the journal passed over", "err", err)
				return nil
			}
			index[d.ID] = len(dirs)
			dirs = append(dirs, d)
			return nil
		})
		if err != nil {
			return err
		}
		c := tx.Bucket(bucketNames).Cursor()
		for k, _ := c.First(); len(k) >= 8; {
			id := meta.InodeID(binary.BigEndian.Uint64(k))
			if i, ok := index[id]; ok {
				dirs[i].Names = true
			} else {
				dirs = append(dirs, Dir{ID: id, Names: true, Known: id == meta.RootDir})
			}
			if id == ^meta.InodeID(0) {
				break
			}
			k, _ = c.Seek(dirKey(id + 1))
		}
		return nil
	})
	return dirs, err
}

func readDir(k, v []byte, own *bolt.Bucket, epochs map[uint64]meta.Epoch) (Dir, error) {
	if len(k) != 8 {
		return Dir{}, errRecord
	}
	d := Dir{ID: meta.InodeID(binary.BigEndian.Uint64(k)), Known: true}
	w, err := decodeWay(v)
	if err != nil {
		return Dir{}, err
	}
	e, err := unmarshalEntry(w.name, w.entry, w.version)
	if err != nil {
		return Dir{}, err
	}
	d.Parent = w.parent
	d.Way = meta.Offer{Name: w.name, Entry: e, Origin: meta.Origin{Epoch: epochs[w.epoch], Version: w.version}}
	d.Self = meta.DirInfo{Parent: w.parent, Mode: e.Mode, UID: e.UID, GID: e.GID, MtimeNs: e.MtimeNs, CtimeNs: e.CtimeNs}
	if b := own.Get(k); b != nil {
		if self, _, err := meta.UnmarshalDir(d.ID, b); err == nil {
			self.Parent = w.parent
			d.Self = self
		}
	}
	return d, nil
}

// Names returns what the journal holds of a directory, in the order of names:
// at most limit of them after a name, or from the first for "". Fewer than limit
// are the last ones. What was handed over is seen only after Flush or Dirs.
func (j *Journal) Names(dir meta.InodeID, after string, limit int) ([]meta.Offer, error) {
	var out []meta.Offer
	err := j.view(func(tx *bolt.Tx, epochs map[uint64]meta.Epoch) error {
		prefix := dirKey(dir)
		c := tx.Bucket(bucketNames).Cursor()
		from := nameKey(dir, after)
		k, v := c.Seek(from)
		if after != "" && bytes.Equal(k, from) {
			k, v = c.Next()
		}
		for ; len(out) < limit && bytes.HasPrefix(k, prefix); k, v = c.Next() {
			o, err := readName(string(k[8:]), v, epochs)
			if err != nil {
				j.log.Warn("name of the journal passed over", "err", err)
				continue
			}
			out = append(out, o)
		}
		return nil
	})
	return out, err
}

// Name returns what the journal holds of one name; false if nothing. What was
// handed over in the last second may be missing.
func (j *Journal) Name(dir meta.InodeID, name string) (o meta.Offer, ok bool) {
	err := j.view(func(tx *bolt.Tx, epochs map[uint64]meta.Epoch) error {
		v := tx.Bucket(bucketNames).Get(nameKey(dir, name))
		if v == nil {
			return nil
		}
		var err error
		o, err = readName(name, v, epochs)
		ok = err == nil
		return err
	})
	return o, ok && err == nil
}

func readName(name string, v []byte, epochs map[uint64]meta.Epoch) (meta.Offer, error) {
	r, err := decodeRecord(v)
	if err != nil {
		return meta.Offer{}, err
	}
	o := meta.Offer{Name: name, Gone: r.kind == kindTombstone, Origin: meta.Origin{Epoch: epochs[r.epoch], Version: r.version}}
	if !o.Gone {
		o.Entry, err = unmarshalEntry(name, r.entry, r.version)
	}
	return o, err
}

// view reads the file.
func (j *Journal) view(fn func(tx *bolt.Tx, epochs map[uint64]meta.Epoch) error) error {
	j.flushing.Lock()
	epochs := maps.Clone(j.byNumber)
	j.flushing.Unlock()
	return j.guard(func() error {
		return j.db.View(func(tx *bolt.Tx) error { return fn(tx, epochs) })
	})
}

// Lacks returns the channel that gets a value when a directory was changed whose
// way the journal does not know: TakeLacking.
func (j *Journal) Lacks() <-chan struct{} { return j.lacks }

// TakeLacking returns those directories, once.
func (j *Journal) TakeLacking() []meta.InodeID {
	j.flushing.Lock()
	defer j.flushing.Unlock()
	out := make([]meta.InodeID, 0, len(j.lacking))
	for d := range j.lacking {
		out = append(out, d)
	}
	clear(j.lacking)
	return out
}

// HasWay reports whether the way of a directory is in the file.
func (j *Journal) HasWay(dir meta.InodeID) (ok bool) {
	_ = j.view(func(tx *bolt.Tx, _ map[uint64]meta.Epoch) error {
		ok = tx.Bucket(bucketDirs).Get(dirKey(dir)) != nil
		return nil
	})
	return ok || dir == meta.RootDir
}

// Recent returns versions that directories had after the last changes made
// here, and their epoch: a store of that epoch whose directory has a lower one
// was rolled back.
func (j *Journal) Recent() (meta.Epoch, map[meta.InodeID]uint64) {
	_ = j.Flush()
	j.flushing.Lock()
	defer j.flushing.Unlock()
	return j.recentOf, maps.Clone(j.recent)
}

// Offered returns the epoch that all of the journal was offered into; the zero
// Epoch if it never was.
func (j *Journal) Offered() (e meta.Epoch) {
	_ = j.view(func(tx *bolt.Tx, _ map[uint64]meta.Epoch) error {
		copy(e[:], tx.Bucket(bucketState).Get(keyOffered))
		return nil
	})
	return e
}

// SetOffered says that all of the journal is in the store's epoch.
func (j *Journal) SetOffered(e meta.Epoch) error { return j.put(keyOffered, e[:]) }

// Touched returns when this node was last in touch with the store; false if
// that is not known. By this machine's clock.
func (j *Journal) Touched() (at time.Time, ok bool) {
	_ = j.view(func(tx *bolt.Tx, _ map[uint64]meta.Epoch) error {
		at, ok = unixTime(tx.Bucket(bucketState).Get(keyTouched))
		return nil
	})
	return at, ok
}

// Touch says that this node is in touch with the store.
func (j *Journal) Touch(now time.Time) error { return j.put(keyTouched, seconds(now)) }

func (j *Journal) put(key, value []byte) error {
	return j.guard(func() error {
		return j.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketState).Put(key, value) })
	})
}

// cleanBatch is how many names one transaction of Clean looks at.
const cleanBatch = 50_000

// Clean removes tombstones written before a time, and what ended before it.
func (j *Journal) Clean(before time.Time) error {
	if err := j.clean(bucketEnded, before, cleanEnded); err != nil {
		return err
	}
	return j.clean(bucketNames, before, cleanSome)
}

func (j *Journal) clean(bucket []byte, before time.Time, some func(b *bolt.Bucket, from []byte, before int64) ([]byte, error)) error {
	var from []byte
	for {
		err := j.guard(func() error {
			return j.db.Update(func(tx *bolt.Tx) (err error) {
				from, err = some(tx.Bucket(bucket), from, before.Unix())
				return err
			})
		})
		if err != nil || from == nil {
			return err
		}
	}
}

// cleanSome returns the key to go on from; nil at the end.
func cleanSome(names *bolt.Bucket, from []byte, before int64) ([]byte, error) {
	var dead [][]byte
	c := names.Cursor()
	k, v := c.Seek(from)
	for n := 0; k != nil && n < cleanBatch; n++ {
		if r, err := decodeRecord(v); err == nil && r.kind == kindTombstone && r.at < before {
			dead = append(dead, bytes.Clone(k))
		}
		k, v = c.Next()
	}
	next := bytes.Clone(k)
	for _, k := range dead {
		if err := names.Delete(k); err != nil {
			return nil, err
		}
	}
	return next, nil
}
