// Package boltfile opens bbolt files that a crash or a disk may have damaged.
// What would end the process in bbolt is an error here, and the owner decides
// whether to begin the file anew.
package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// ErrUnfit: the file is not one that this program can go on with.
var ErrUnfit = errors.New("unusable file")

// lockTimeout bounds the wait for a process that has the file open.
const lockTimeout = 5 * time.Second

// keyFormat of the layout's bucket holds the number of the layout.
var keyFormat = []byte("format")

// Layout is what a file must be.
type Layout struct {
	Format  uint64   // number of the layout; a file of another one is unfit
	Bucket  []byte   // holds that number
	Buckets [][]byte // made where they are missing; Bucket is, too
	// Load, if not nil, runs in the transaction that makes the buckets.
	Load func(tx *bolt.Tx) error
}

// Open opens a file, made if there is none, and makes it what layout says.
// ErrUnfit: what is there is damaged or of another layout, and may be set
// aside. A file that may not be read, or that another process has, is not.
func Open(path string, layout Layout) (db *bolt.DB, err error) {
	defer func() { // bbolt panics where a page is not what it should be
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrUnfit, r)
		}
	}()
	// With NoFreelistSync a damaged file would end the process: bbolt then
	// reads all of it in a goroutine of its own, where a panic is final.
	db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType})
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission), errors.Is(err, bolterrors.ErrTimeout):
		return nil, err
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	if err = layout.check(db); err == nil {
		err = db.Update(layout.prepare)
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

// check reports why the file is not of this layout.
func (l Layout) check(db *bolt.DB) error {
	return db.View(func(tx *bolt.Tx) error {
		// A file cut short would end this process at the first page that
		// is missing.
		st, err := os.Stat(db.Path())
		if err != nil {
			return err
		}
		if st.Size() < tx.Size() {
			return fmt.Errorf("%w: %d bytes of %d are there", ErrUnfit, st.Size(), tx.Size())
		}
		if b := tx.Bucket(l.Bucket); b != nil {
			if v := b.Get(keyFormat); len(v) != 8 || binary.LittleEndian.Uint64(v) != l.Format {
				return fmt.Errorf("%w: its format %x is not known", ErrUnfit, v)
			}
		}
		return nil
	})
}

func (l Layout) prepare(tx *bolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists(l.Bucket)
	if err != nil {
		return err
	}
	for _, name := range l.Buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	if l.Load != nil {
		if err := l.Load(tx); err != nil {
			return err
		}
	}
	if b.Get(keyFormat) != nil {
		return nil
	}
	return b.Put(keyFormat, binary.LittleEndian.AppendUint64(nil, l.Format))
}

// SetAside renames a file, over one set aside before. One that is not there is
// no error.
func SetAside(path string) error {
	if err := os.Rename(path, path+".bad"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	return nil
}
