package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/boltfile"
)

var errClosed = errors.New("the journal is closed")

// recentDirs is how many directories' last changes are remembered to find out
// that a store is behind what it said.
const recentDirs = 64

func (j *Journal) loadEpochs(b *bolt.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		if len(k) != 8 || len(v) != len(meta.Epoch{}) {
			return fmt.Errorf("%w: epoch %x is %x", boltfile.ErrUnfit, k, v)
		}
		n := binary.BigEndian.Uint64(k)
		j.epochs[meta.Epoch(v)], j.byNumber[n] = n, meta.Epoch(v)
		return nil
	})
}

// Epochs tells of the epochs that the store has been in, the first one first.
// What was written in one counts as later than what was in those before it: so
// they have to be told before anything of a new one is.
func (j *Journal) Epochs(all []meta.Epoch) error {
	if err := j.Flush(); err != nil {
		return err
	}
	j.flushing.Lock()
	defer j.flushing.Unlock()
	return j.numbering(func() error {
		return j.db.Update(func(tx *bolt.Tx) error {
			for _, e := range all {
				if _, err := j.number(tx.Bucket(bucketEpochs), e); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// numbering does what numbers epochs, and forgets the new numbers if that is not
// in the file. j.flushing is held.
func (j *Journal) numbering(do func() error) error {
	known := uint64(len(j.epochs))
	err := j.guard(do)
	if err != nil {
		for n := known; n < uint64(len(j.byNumber)); n++ {
			delete(j.epochs, j.byNumber[n])
		}
		maps.DeleteFunc(j.byNumber, func(n uint64, _ meta.Epoch) bool { return n >= known })
	}
	return err
}

// number returns the number that stands for an epoch in the file. They are
// given in the order of Epochs, and of what is written. j.flushing is held.
func (j *Journal) number(b *bolt.Bucket, e meta.Epoch) (uint64, error) {
	if n, ok := j.epochs[e]; ok {
		return n, nil
	}
	n := uint64(len(j.epochs))
	if err := b.Put(binary.BigEndian.AppendUint64(nil, n), e[:]); err != nil {
		return 0, err
	}
	j.epochs[e], j.byNumber[n] = n, e
	return n, nil
}

// noteRecent remembers the version that a directory had after a change. Only
// those of the last epoch count. j.flushing is held.
func (j *Journal) noteRecent(dir meta.InodeID, at meta.Origin) {
	if at.Epoch != j.recentOf {
		clear(j.recent)
		j.recentOf = at.Epoch
	}
	j.recent[dir] = max(j.recent[dir], at.Version)
	if len(j.recent) <= recentDirs {
		return
	}
	oldest := dir
	for d, v := range j.recent {
		if v < j.recent[oldest] {
			oldest = d
		}
	}
	delete(j.recent, oldest)
}

func (j *Journal) encodeRecent() []byte {
	b := append([]byte{}, j.recentOf[:]...)
	for d, v := range j.recent {
		b = binary.BigEndian.AppendUint64(b, uint64(d))
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func (j *Journal) loadRecent(b []byte) error {
	if b == nil {
		return nil
	}
	if len(b) < len(j.recentOf) || (len(b)-len(j.recentOf))%16 != 0 {
		return fmt.Errorf("%w: %d bytes of recent changes", boltfile.ErrUnfit, len(b))
	}
	b = b[copy(j.recentOf[:], b):]
	for ; len(b) > 0; b = b[16:] {
		j.recent[meta.InodeID(binary.BigEndian.Uint64(b))] = binary.BigEndian.Uint64(b[8:])
	}
	return nil
}
