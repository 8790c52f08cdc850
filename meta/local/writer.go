package local

import (
	"maps"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/meta"
)

// note adds to what is to be written.
func (t *Table) note(dir meta.InodeID, n int, fn func(*change)) {
	t.mu.Lock()
	if t.broken {
		t.mu.Unlock()
		return
	}
	c := t.pending[dir]
	if c == nil {
		c = &change{names: make(map[string]*meta.Entry)}
		t.pending[dir] = c
	}
	fn(c)
	t.count += n
	first := t.count == n || t.count >= hurry
	t.mu.Unlock()
	if first {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// writer writes what is put, in batches, until Close.
func (t *Table) writer() {
	defer close(t.done)
	for {
		select {
		case <-t.quit:
			t.flush()
			return
		case <-t.wake:
		}
		t.gather()
		t.flush()
	}
}

// gather waits for more to write.
func (t *Table) gather() {
	timer := time.NewTimer(writePause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-t.quit:
			return
		case <-t.wake:
			t.mu.Lock()
			many := t.count >= hurry
			t.mu.Unlock()
			if many {
				return
			}
		}
	}
}

// flush writes what was put before the call. A batch that cannot be written is
// dropped: the table is a memory.
func (t *Table) flush() {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	t.mu.Lock()
	batch := t.pending
	t.pending, t.count = make(map[meta.InodeID]*change), 0
	t.writing = maps.Clone(batch)
	t.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	defer t.written()
	err := t.guard(func() error {
		err := t.db.View(func(tx *bolt.Tx) error { return trim(tx.Bucket(bucketDirs), batch) })
		if err != nil || len(batch) == 0 {
			return err
		}
		return t.db.Update(func(tx *bolt.Tx) error { return write(tx.Bucket(bucketDirs), batch) })
	})
	if err != nil && !t.isBroken() {
		t.log.Warn("names not remembered", "err", err)
	}
}

// written forgets the batch that is in the file now.
func (t *Table) written() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing = nil
}

// unwritten looks a name up in what is not in the file yet. known says that it
// was found there, if only as one that is gone.
func (t *Table) unwritten(dir meta.InodeID, name string) (e meta.Entry, ok, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, batch := range []map[meta.InodeID]*change{t.pending, t.writing} {
		if c := batch[dir]; c != nil {
			if e, ok, known = c.lookup(name); known {
				return e, ok, true
			}
		}
	}
	return e, false, false
}

// lookup returns what a change says of a name, if anything.
func (c *change) lookup(name string) (e meta.Entry, ok, known bool) {
	if n, named := c.names[name]; named {
		if n == nil {
			return e, false, true
		}
		return *n, true, true
	}
	if !c.whole {
		return e, false, false
	}
	if c.index == nil { // made when first asked for: most directories never are
		c.index = make(map[string]int, len(c.entries))
		for i := range c.entries {
			c.index[c.entries[i].Name] = i
		}
	}
	i, ok := c.index[name]
	if !ok {
		return e, false, true
	}
	return c.entries[i], true, true
}

func (t *Table) isBroken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}
