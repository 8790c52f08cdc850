// Package local is the durable table of names beside a cache, in one bbolt
// file: what this machine knew of the store when it could last be asked. It
// owns that file and knows nothing of stores or mounts.
package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/meta"
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
	bucketTable = []byte("table") // keyFormat, keyStore
	bucketDirs  = []byte("dirs")  // directory id to a bucket of names
	keyFormat   = []byte("format")
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
	if errors.Is(err, errUnfit) {
		log.Warn("table of names begun anew", "file", path, "err", err)
		if err := setAside(path); err != nil {
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

// errUnfit: the file is not one that this program can go on with.
var errUnfit = errors.New("unusable file")

func openDB(path string) (db *bolt.DB, err error) {
	defer func() {
		// bbolt panics where a page is not what it should be.
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errUnfit, r)
		}
	}()
	if st, err := os.Stat(path); err == nil && st.Size() > maxBytes {
		return nil, fmt.Errorf("%w: it has grown to %d bytes", errUnfit, st.Size())
	}
	// With NoFreelistSync a damaged file would end the process: bbolt then
	// reads all of it in a goroutine of its own, where a panic is final.
	db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: 5 * time.Second, FreelistType: bolt.FreelistMapType})
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission), errors.Is(err, bolt.ErrTimeout):
		return nil, err
	default:
		return nil, fmt.Errorf("%w: %w", errUnfit, err)
	}
	if err := prepare(db); err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

// prepare checks the file's layout and makes its buckets.
func prepare(db *bolt.DB) error {
	err := db.View(func(tx *bolt.Tx) error {
		// A file cut short would end this process at the first page that
		// is missing.
		st, err := os.Stat(db.Path())
		if err != nil {
			return err
		}
		if st.Size() < tx.Size() {
			return fmt.Errorf("%w: %d bytes of %d are there", errUnfit, st.Size(), tx.Size())
		}
		if b := tx.Bucket(bucketTable); b != nil {
			if v := b.Get(keyFormat); len(v) != 8 || binary.LittleEndian.Uint64(v) != format {
				return fmt.Errorf("%w: its format %x is not known", errUnfit, v)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucketTable)
		if err != nil {
			return err
		}
		if _, err := tx.CreateBucketIfNotExists(bucketDirs); err != nil {
			return err
		}
		if b.Get(keyFormat) != nil {
			return nil
		}
		return b.Put(keyFormat, binary.LittleEndian.AppendUint64(nil, format))
	})
}

// setAside renames the file, over one set aside before.
func setAside(path string) error {
	if err := os.Rename(path, path+".bad"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set table of names aside: %w", err)
	}
	return nil
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
		return errUnfit
	}
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		err = fmt.Errorf("%w: %v", errUnfit, r)
		t.mu.Lock()
		t.broken = true
		t.mu.Unlock()
		t.log.Error("table of names is damaged, and not used until the next start", "file", t.path, "err", err)
		_ = setAside(t.path)
	}()
	return fn()
}
