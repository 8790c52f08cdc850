package journal

import (
	"bytes"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// What the journal knows of objects tells bytes that nobody wants any more from
// bytes whose name was lost with the store:
//
//   - An object has ended when a name of the journal that stood for it was
//     removed, or came to stand for another. That is remembered for as long as
//     tombstones are. One that was renamed may have ended and live on.
//   - An object is held that had no name after the store was lost, and has not
//     ended: it stays until a name is found.
var (
	bucketEnded = []byte("ended") // object to seconds since 1970
	bucketHeld  = []byte("held")  // object to seconds since 1970
	keyHeldFor  = []byte("held")  // the epoch for which objects were held
)

// ends notes that a name does not stand any more for what was written there;
// now is what it stands for, the zero ObjectID for nothing.
func (w *batchWriter) ends(name string, was record, now chunk.ObjectID) error {
	if was.kind != kindEntry {
		return nil
	}
	e, err := unmarshalEntry(name, was.entry, 0)
	if err != nil || e.Object.ID.IsZero() || e.Object.ID == now {
		return nil // one that cannot be read says nothing
	}
	return w.ended.Put(e.Object.ID[:], seconds(time.Unix(w.now, 0)))
}

// Live calls fn with the objects of all names that the journal holds. What was
// handed over before the call is seen.
func (j *Journal) Live(fn func(chunk.ObjectID)) error {
	if err := j.Flush(); err != nil {
		return err
	}
	return j.view(func(tx *bolt.Tx, _ map[uint64]meta.Epoch) error {
		return tx.Bucket(bucketNames).ForEach(func(k, v []byte) error {
			r, err := decodeRecord(v)
			if err != nil || r.kind != kindEntry || len(k) <= 8 {
				return nil
			}
			if e, err := unmarshalEntry(string(k[8:]), r.entry, 0); err == nil && !e.Object.ID.IsZero() {
				fn(e.Object.ID)
			}
			return nil
		})
	})
}

// Ended reports whether a name that stood for an object is known not to any
// more. What was handed over is seen only after Flush.
func (j *Journal) Ended(id chunk.ObjectID) (yes bool) {
	_ = j.view(func(tx *bolt.Tx, _ map[uint64]meta.Epoch) error {
		yes = tx.Bucket(bucketEnded).Get(id[:]) != nil
		return nil
	})
	return yes
}

// Held returns the objects that are held.
func (j *Journal) Held() ([]chunk.ObjectID, error) {
	var out []chunk.ObjectID
	err := j.view(func(tx *bolt.Tx, _ map[uint64]meta.Epoch) error {
		return tx.Bucket(bucketHeld).ForEach(func(k, _ []byte) error {
			if len(k) != len(chunk.ObjectID{}) {
				return fmt.Errorf("%w: object %x is held", errRecord, k)
			}
			out = append(out, chunk.ObjectID(k))
			return nil
		})
	})
	return out, err
}

// Hold adds objects to those that are held, and says that for an epoch they are
// all there.
func (j *Journal) Hold(e meta.Epoch, ids []chunk.ObjectID) error {
	return j.guard(func() error {
		return j.db.Update(func(tx *bolt.Tx) error {
			b, now := tx.Bucket(bucketHeld), seconds(time.Now())
			for _, id := range ids {
				if err := b.Put(id[:], now); err != nil {
					return err
				}
			}
			return tx.Bucket(bucketState).Put(keyHeldFor, e[:])
		})
	})
}

// Unhold takes objects out of those that are held.
func (j *Journal) Unhold(ids []chunk.ObjectID) error {
	if len(ids) == 0 {
		return nil
	}
	return j.guard(func() error {
		return j.db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketHeld)
			for _, id := range ids {
				if err := b.Delete(id[:]); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// HeldFor returns the last epoch that Hold was called for; the zero Epoch if it
// never was.
func (j *Journal) HeldFor() (e meta.Epoch) {
	_ = j.view(func(tx *bolt.Tx, _ map[uint64]meta.Epoch) error {
		copy(e[:], tx.Bucket(bucketState).Get(keyHeldFor))
		return nil
	})
	return e
}

// cleanEnded forgets the objects that ended before a time. It returns the key to
// go on from; nil at the end.
func cleanEnded(ended *bolt.Bucket, from []byte, before int64) ([]byte, error) {
	var dead [][]byte
	c := ended.Cursor()
	k, v := c.Seek(from)
	for n := 0; k != nil && n < cleanBatch; n++ {
		if at, ok := unixTime(v); !ok || at.Unix() < before {
			dead = append(dead, bytes.Clone(k))
		}
		k, v = c.Next()
	}
	next := bytes.Clone(k)
	for _, k := range dead {
		if err := ended.Delete(k); err != nil {
			return nil, err
		}
	}
	return next, nil
}
