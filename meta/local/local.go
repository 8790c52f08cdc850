// Package local is the durable table of names beside a cache, in one bbolt
// file: what this machine knew of the store when it could last be asked. It
// owns that file and knows nothing of stores or mounts.
package local

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/boltfile"
)

const (
	// fileName is the table's file in its directory.
	fileName = "names.db"
	// format is the layout of the file. Another one starts anew: the table
	// is a memory, not an authority.
	format = 1
	// maxBytes is the file size from which a table starts anew.
	maxBytes = 1 << 30
	// writePause is how long writes are gathered, and hurry how many of
	// them end the wait.
	writePause = 500 * time.Millisecond
	hurry      = 20_000
)

// Buckets and keys of the file.
var (
	bucketTable = []byte("table") // the format, keyStore
	bucketDirs  = []byte("dirs")  // directory id to a bucket of names
	keyStore    = []byte("store")
	// keyWhole is in the bucket of a wholly known directory and holds its
	// version. No name is a NUL.
	keyWhole = []byte{0}
)

// Table is the durable table of names. Safe for concurrent use.
type Table struct {
	path string
	log  *slog.Logger
	db   *bolt.DB
	wake chan struct{}
	quit chan struct{}
	done chan struct{}
	once sync.Once

	flushing sync.Mutex // held while a batch is written; before mu

	mu      sync.Mutex
	pending map[meta.InodeID]*change
	writing map[meta.InodeID]*change // the batch being written; its names do not change any more
	count   int
	broken  bool
}

var _ meta.LocalTable = (*Table)(nil)

// Open opens the table in a directory, which must exist and which no other
// process may use. A file that cannot be read is moved aside and a new one
// begun, with a line in the log. It starts one goroutine, which writes what is
// put; Close ends it. A nil log discards.
func Open(dir string, log *slog.Logger) (*Table, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	path := filepath.Join(dir, fileName)
	db, err := openDB(path)
	if errors.Is(err, boltfile.ErrUnfit) {
		log.Warn("table of names begun anew", "file", path, "err", err)
		if err := boltfile.SetAside(path); err != nil {
			return nil, err
		}
		db, err = openDB(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open table of names %s: %w", path, err)
	}
	t := &Table{
		path: path, log: log, db: db, pending: make(map[meta.InodeID]*change),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go t.writer()
	return t, nil
}

func openDB(path string) (*bolt.DB, error) {
	if st, err := os.Stat(path); err == nil && st.Size() > maxBytes {
		return nil, fmt.Errorf("%w: it has grown to %d bytes", boltfile.ErrUnfit, st.Size())
	}
	return boltfile.Open(path, boltfile.Layout{Format: format, Bucket: bucketTable, Buckets: [][]byte{bucketDirs}})
}

// Close writes what is put, and closes the file.
func (t *Table) Close() error {
	var err error
	t.once.Do(func() {
		close(t.quit)
		<-t.done
		if err = t.db.Close(); err != nil {
			err = fmt.Errorf("close table of names: %w", err)
		}
	})
	return err
}

// SaveStore keeps what the store said of itself, so that a mount can start
// without it. It returns when that is on disk.
func (t *Table) SaveStore(s meta.StoreInfo) error {
	b, err := meta.MarshalStore(s)
	if err == nil {
		err = t.guard(func() error {
			return t.db.Update(func(tx *bolt.Tx) error {
				table := tx.Bucket(bucketTable)
				old, err := meta.UnmarshalStore(table.Get(keyStore))
				if err == nil && old.Epoch != s.Epoch {
					if err := forgetVersions(tx.Bucket(bucketDirs)); err != nil {
						return err
					}
				}
				return table.Put(keyStore, b)
			})
		})
	}
	if err != nil {
		return fmt.Errorf("save store record: %w", err)
	}
	return nil
}

// forgetVersions keeps what is known of directories, but not of which version:
// those of another epoch say nothing.
func forgetVersions(dirs *bolt.Bucket) error {
	var whole [][]byte
	err := dirs.ForEachBucket(func(k []byte) error {
		if dirs.Bucket(k).Get(keyWhole) != nil {
			whole = append(whole, k)
		}
		return nil
	})
	for _, k := range whole {
		if err == nil {
			err = dirs.Bucket(k).Put(keyWhole, make([]byte, 8))
		}
	}
	return err
}

// LoadStore returns what SaveStore kept; false if it kept nothing.
func (t *Table) LoadStore() (s meta.StoreInfo, ok bool, err error) {
	err = t.guard(func() error {
		return t.db.View(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketTable).Get(keyStore)
			if b == nil {
				return nil
			}
			ok = true
			s, err = meta.UnmarshalStore(b)
			return err
		})
	})
	if err != nil {
		return meta.StoreInfo{}, false, fmt.Errorf("load store record: %w", err)
	}
	return s, ok, nil
}

// guard runs fn, which uses the file, and takes the table out of use if the
// file turns out to be damaged: the next start begins anew.
func (t *Table) guard(fn func() error) (err error) {
	t.mu.Lock()
	broken := t.broken
	t.mu.Unlock()
	if broken {
		return boltfile.ErrUnfit
	}
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		err = fmt.Errorf("%w: %v", boltfile.ErrUnfit, r)
		t.mu.Lock()
		t.broken = true
		t.mu.Unlock()
		t.log.Error("table of names is damaged, and not used until the next start", "file", t.path, "err", err)
		_ = boltfile.SetAside(t.path)
	}()
	return fn()
}
