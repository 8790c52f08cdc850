package journal

import (
	"bytes"
	"encoding/binary"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// change is what is to be written about one directory.
type change struct {
	dir    meta.InodeID
	at     meta.Origin
	sets   []meta.Set
	forget []meta.Origin // of sets, whose values do not matter: forgotten if they are that old
	way    []byte        // of dir: the store's record of its name in parent
	name   string        // that name
	parent meta.InodeID
	into   meta.InodeID // dir's names belong into this one from now on
	told   bool         // by the store: others may have done it, at any time
}

// names returns how many names it is about.
func (c *change) names() int { return max(1, len(c.sets)) }

// Changed implements meta.Recorder.
func (j *Journal) Changed(dir meta.InodeID, at meta.Origin, sets []meta.Set) {
	j.add(change{dir: dir, at: at, sets: sets})
}

// Wrote notes an entry as the store has it, with its Version, in an epoch.
func (j *Journal) Wrote(dir meta.InodeID, epoch meta.Epoch, e meta.Entry) error {
	b, err := meta.MarshalEntry(e, nil)
	if err != nil {
		return err
	}
	j.add(change{dir: dir, at: meta.Origin{Epoch: epoch, Version: e.Version}, sets: []meta.Set{{Field: e.Name, Value: b}}, told: true})
	return nil
}

// Removed notes that a name was removed when it, or its directory, had a
// version.
func (j *Journal) Removed(dir meta.InodeID, name string, at meta.Origin) {
	j.Changed(dir, at, []meta.Set{{Field: name}})
}

// Way notes where a directory's name is that others made; e is that name.
func (j *Journal) Way(parent meta.InodeID, epoch meta.Epoch, e meta.Entry) {
	b, err := meta.MarshalEntry(e, nil)
	if err != nil {
		j.log.Warn("way to a directory is not in the journal", "dir", e.Inode, "err", err)
		return
	}
	j.add(change{dir: e.Inode, at: meta.Origin{Epoch: epoch, Version: e.Version}, way: b, name: e.Name, parent: parent})
}

// Forget takes names out that do not stand for what this node wrote any more,
// unless it wrote them again since.
func (j *Journal) Forget(dir meta.InodeID, offers []meta.Offer) {
	if len(offers) == 0 {
		return
	}
	c := change{dir: dir}
	for _, o := range offers {
		c.sets = append(c.sets, meta.Set{Field: o.Name})
		c.forget = append(c.forget, o.Origin)
	}
	j.add(c)
}

// Moved says that the names of a directory belong into another one from now on.
func (j *Journal) Moved(dir, into meta.InodeID) { j.add(change{dir: dir, into: into}) }

// add hands a change over: when it returns, the change outlives this process.
// It waits only while far more is pending than the disk takes in a moment.
func (j *Journal) add(c change) {
	j.mu.Lock()
	for j.count >= pendingMax && j.broken == nil {
		j.room.Wait()
	}
	j.mu.Unlock()
	h := &j.handover
	h.mu.Lock()
	defer h.mu.Unlock()
	if !j.queue(c) {
		return
	}
	err := h.append(&c)
	if err != nil && !h.fails {
		j.log.Error("changes of names are not handed over: the last ones will be lost if this process is killed", "file", j.path, "err", err)
	}
	h.fails = err != nil
}

// queue makes a change pending; false if the journal is not in use.
func (j *Journal) queue(c change) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return false
	}
	j.pending = append(j.pending, c)
	n := c.names()
	j.count += n
	if j.count == n || j.count >= hurry {
		select {
		case j.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// writer writes what is handed over, in batches, until Close.
func (j *Journal) writer() {
	defer close(j.done)
	for {
		select {
		case <-j.quit:
			j.flushLogged()
			j.mu.Lock()
			if j.broken == nil { // what comes after Close is lost
				j.broken = errClosed
			}
			j.room.Broadcast()
			j.mu.Unlock()
			return
		case <-j.wake:
		}
		j.gather()
		j.flushLogged()
	}
}

// gather waits for more to write.
func (j *Journal) gather() {
	timer := time.NewTimer(writePause)
	defer timer.Stop()
	for {
		j.mu.Lock()
		many := j.count >= hurry
		j.mu.Unlock()
		if many {
			return
		}
		select {
		case <-timer.C:
			return
		case <-j.quit:
			return
		case <-j.wake:
		}
	}
}

func (j *Journal) flushLogged() {
	if err := j.Flush(); err != nil {
		j.log.Error("changes of names are not in the journal: they will not come back if the store loses them", "file", j.path, "err", err)
	}
}

// Flush writes what was handed over before the call; it is on disk then.
func (j *Journal) Flush() error {
	j.flushing.Lock()
	defer j.flushing.Unlock()
	h := &j.handover
	batch, taken := j.take()
	if h.behind {
		// What could not be written before is in both files; what is
		// pending is in there, too, or comes after it.
		older, err := h.read(j.taken)
		if err != nil {
			j.log.Error("changes of names that were handed over cannot be read", "file", j.path, "err", err)
		}
		batch = append(older, batch...)
	}
	if len(batch) == 0 {
		return nil
	}
	return j.flush(batch, taken)
}

// take takes what is pending, and the turn in which the last of it that the
// database can forget about was written. j.flushing is held.
func (j *Journal) take() (batch []change, taken uint64) {
	h := &j.handover
	h.mu.Lock()
	defer h.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	batch = j.pending
	j.pending, j.count = nil, 0
	j.room.Broadcast()
	if len(batch) > 0 && !h.behind {
		h.turn++
	}
	return batch, h.turn - 1
}

// flush writes changes, all of those of a turn among them, and empties the file
// of that turn. j.flushing is held.
func (j *Journal) flush(batch []change, taken uint64) error {
	err := j.numbering(func() error {
		return j.db.Update(func(tx *bolt.Tx) error {
			if err := tx.Bucket(bucketState).Put(keyTaken, binary.LittleEndian.AppendUint64(nil, taken)); err != nil {
				return err
			}
			return j.write(tx, batch)
		})
	})
	j.handover.behind = err != nil
	if err != nil {
		return err
	}
	j.taken = taken
	j.handover.files[taken%2].empty()
	return nil
}

// batchWriter is one transaction.
type batchWriter struct {
	j                               *Journal
	epochs, names, dirs, own, ended *bolt.Bucket
	now                             int64
}

func (j *Journal) write(tx *bolt.Tx, batch []change) error {
	w := &batchWriter{
		j: j, epochs: tx.Bucket(bucketEpochs), names: tx.Bucket(bucketNames),
		dirs: tx.Bucket(bucketDirs), own: tx.Bucket(bucketSelf), ended: tx.Bucket(bucketEnded), now: time.Now().Unix(),
	}
	for i := range batch {
		if err := w.change(&batch[i]); err != nil {
			return err
		}
	}
	w.lacking(batch)
	return tx.Bucket(bucketState).Put(keyRecent, j.encodeRecent())
}

// lacking notes which directories that were changed have no way.
func (w *batchWriter) lacking(batch []change) {
	for i := range batch {
		d := batch[i].dir
		if d == meta.RootDir || batch[i].forget != nil || batch[i].into != 0 || w.dirs.Get(dirKey(d)) != nil {
			continue
		}
		w.j.lacking[d] = true
	}
	if len(w.j.lacking) > 0 {
		select {
		case w.j.lacks <- struct{}{}:
		default:
		}
	}
}

func (w *batchWriter) change(c *change) error {
	switch {
	case c.forget != nil:
		return w.forget(c)
	case c.way != nil:
		return w.way(c)
	case c.into != 0:
		return w.move(c.dir, c.into)
	}
	epoch, err := w.j.number(w.epochs, c.at.Epoch)
	if err != nil {
		return err
	}
	if !c.told || c.at.Epoch == w.j.recentOf {
		w.j.noteRecent(c.dir, c.at)
	}
	// What is written goes first: a directory that is renamed has its new
	// name before it loses the old one.
	for _, removed := range []bool{false, true} {
		for _, s := range c.sets {
			if (s.Value == nil) != removed {
				continue
			}
			if err := w.set(c.dir, record{epoch: epoch, version: c.at.Version}, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *batchWriter) set(dir meta.InodeID, r record, s meta.Set) error {
	switch {
	case s.Field == meta.SelfField:
		return w.self(dir, s.Value)
	case meta.CheckName(s.Field) != nil: // no name: a decision about a move
		return nil
	case s.Value == nil:
		r.kind, r.at = kindTombstone, w.now
	default:
		r.kind, r.entry = kindEntry, s.Value
	}
	key := nameKey(dir, s.Field)
	was, wasErr := decodeRecord(w.names.Get(key))
	if wasErr == nil && r.before(was) {
		return nil // two changes of one name came in the wrong order
	}
	var e meta.Entry
	if r.kind == kindEntry {
		var err error
		if e, err = unmarshalEntry(s.Field, s.Value, 0); err != nil {
			w.j.log.Error("name is not in the journal", "dir", dir, "name", s.Field, "err", err)
			return nil // the others need not be lost with it
		}
	}
	if wasErr == nil {
		if err := w.ends(s.Field, was, e.Object.ID); err != nil {
			return err
		}
	}
	if r.kind == kindEntry {
		if e.Kind == meta.KindDir {
			v := way{epoch: r.epoch, version: r.version, parent: dir, name: s.Field, entry: s.Value}
			if err := w.putWay(e.Inode, v); err != nil {
				return err
			}
		}
	}
	return w.names.Put(key, r.encode())
}

// self takes a change of a directory's own record: one that is removed was
// empty, and never comes back.
func (w *batchWriter) self(dir meta.InodeID, value []byte) error {
	if value != nil {
		if _, dead, err := meta.UnmarshalDir(dir, value); err != nil || !dead {
			return w.own.Put(dirKey(dir), value)
		}
	}
	return w.drop(dir, func(name string, r record) error { return w.ends(name, r, chunk.ObjectID{}) })
}

// drop takes a directory out, and tells each name that it held.
func (w *batchWriter) drop(dir meta.InodeID, each func(name string, r record) error) error {
	key := dirKey(dir)
	for _, b := range []*bolt.Bucket{w.own, w.dirs} {
		if err := b.Delete(key); err != nil {
			return err
		}
	}
	c := w.names.Cursor()
	for k, v := c.Seek(key); k != nil && bytes.HasPrefix(k, key); k, v = c.Seek(key) {
		name := string(k[8:])
		r, err := decodeRecord(bytes.Clone(v))
		if err == nil {
			err = each(name, r)
		}
		if err == nil {
			err = w.names.Delete(nameKey(dir, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// move takes the names of one directory to another, where that has no later
// ones.
func (w *batchWriter) move(from, into meta.InodeID) error {
	return w.drop(from, func(name string, r record) error {
		key := nameKey(into, name)
		if was, err := decodeRecord(w.names.Get(key)); err == nil && r.before(was) {
			return w.ends(name, r, chunk.ObjectID{})
		}
		return w.names.Put(key, r.encode())
	})
}

func (w *batchWriter) way(c *change) error {
	epoch, err := w.j.number(w.epochs, c.at.Epoch)
	if err != nil {
		return err
	}
	return w.putWay(c.dir, way{epoch: epoch, version: c.at.Version, parent: c.parent, name: c.name, entry: c.way})
}

func (w *batchWriter) putWay(id meta.InodeID, v way) error {
	if old := w.dirs.Get(dirKey(id)); old != nil {
		was, err := decodeWay(old)
		if err == nil && (record{epoch: v.epoch, version: v.version}).before(record{epoch: was.epoch, version: was.version}) {
			return nil
		}
	}
	return w.dirs.Put(dirKey(id), v.encode())
}

func (w *batchWriter) forget(c *change) error {
	for i, s := range c.sets {
		key := nameKey(c.dir, s.Field)
		was, err := decodeRecord(w.names.Get(key))
		if err != nil || w.j.byNumber[was.epoch] != c.forget[i].Epoch || was.version != c.forget[i].Version {
			continue
		}
		if err := w.ends(s.Field, was, chunk.ObjectID{}); err != nil {
			return err
		}
		if err := w.names.Delete(key); err != nil {
			return err
		}
	}
	return nil
}
