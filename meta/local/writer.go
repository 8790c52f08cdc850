package local

import (
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
	t.mu.Unlock()
	if len(batch) == 0 {
		return
	}
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

func (t *Table) isBroken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}
