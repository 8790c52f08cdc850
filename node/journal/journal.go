package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/meta/boltfile"
)

// TombstonesFor is how long a removal is remembered.
const TombstonesFor = 7 * 24 * time.Hour

const (
	// fileName is the journal's file in its directory.
	fileName = "journal.db"
	// format is the layout of the file.
	format = 1
	// writePause is how long changes are gathered, hurry how many of them
	// end the wait, and pendingMax how many make the caller wait.
	writePause = 500 * time.Millisecond
	hurry      = 20_000
	pendingMax = 200_000
)

// Buckets and keys of the file.
var (
	bucketState  = []byte("journal") // the keys below
	bucketEpochs = []byte("epochs")  // number to epoch
	bucketNames  = []byte("names")   // directory id and name to a record
	bucketDirs   = []byte("dirs")    // directory id to its way
	bucketSelf   = []byte("self")    // directory id to its own record

	keyOffered = []byte("offered") // the epoch that all of it was offered into
	keyTouched = []byte("touched") // seconds since 1970
	keyRecent  = []byte("recent")
	keyTaken   = []byte("taken") // the last turn of the handover that is in the file
)

// Journal is the durable memory of what this node did to names. Safe for
// concurrent use.
type Journal struct {
	path string
	log  *slog.Logger
	db   *bolt.DB
	wake chan struct{}
	quit chan struct{}
	done chan struct{}
	once sync.Once

	handover handover

	flushing sync.Mutex              // held while a batch is written; before handover.mu and mu
	epochs   map[meta.Epoch]uint64   // numbers of those in the file; guarded by flushing
	byNumber map[uint64]meta.Epoch   // guarded by flushing
	recent   map[meta.InodeID]uint64 // of recentOf: versions of changes; guarded by flushing
	recentOf meta.Epoch              // guarded by flushing
	taken    uint64                  // the last turn whose changes are in the file; guarded by flushing
	lacking  map[meta.InodeID]bool   // directories whose way is not known; guarded by flushing
	lacks    chan struct{}

	mu      sync.Mutex
	room    sync.Cond // on mu: pending was taken
	pending []change
	count   int // names in pending
	broken  error
}

var _ meta.Recorder = (*Journal)(nil)

// Open opens the journal in a directory, which must exist and which no other
// process may use. A file that cannot be read is moved aside and a new one
// begun, with an error in the log. It starts one goroutine, which writes what
// is handed over; Close ends it. A nil log discards.
func Open(dir string, log *slog.Logger) (*Journal, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	j := &Journal{
		path: filepath.Join(dir, fileName), log: log,
		epochs: map[meta.Epoch]uint64{}, byNumber: map[uint64]meta.Epoch{}, recent: map[meta.InodeID]uint64{},
		lacking: map[meta.InodeID]bool{}, lacks: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	j.room.L = &j.mu
	err := j.open()
	if errors.Is(err, boltfile.ErrUnfit) {
		log.Error("the journal of names is unreadable and begun anew: names written here before will not come back if the store loses them", "file", j.path, "err", err)
		if err := boltfile.SetAside(j.path); err != nil {
			return nil, err
		}
		err = j.open()
	}
	if err != nil {
		return nil, fmt.Errorf("open the journal of names %s: %w", j.path, err)
	}
	j.takeOver(dir)
	go j.writer()
	return j, nil
}

// takeOver writes what the last process had handed over, and not written.
func (j *Journal) takeOver(dir string) {
	h := &j.handover
	found, err := h.open(dir, j.taken)
	if err != nil {
		h.fails = true
		j.log.Error("changes of names are not handed over: the last ones will be lost if this process is killed", "dir", dir, "err", err)
	}
	if len(found) > 0 {
		if err := j.flush(found, h.turn-1); err != nil {
			j.log.Error("changes of names that were handed over are not in the journal yet", "file", j.path, "err", err)
			return
		}
	}
	for i := range h.files {
		h.files[i].empty()
	}
}

func (j *Journal) open() (err error) {
	j.db, err = boltfile.Open(j.path, boltfile.Layout{
		Format: format, Bucket: bucketState, Load: j.load,
		Buckets: [][]byte{bucketEpochs, bucketNames, bucketDirs, bucketSelf, bucketEnded, bucketHeld},
	})
	return err
}

// load takes what is kept in memory out of the file.
func (j *Journal) load(tx *bolt.Tx) error {
	if err := j.loadEpochs(tx.Bucket(bucketEpochs)); err != nil {
		return err
	}
	state := tx.Bucket(bucketState)
	if v := state.Get(keyTaken); len(v) == 8 {
		j.taken = binary.LittleEndian.Uint64(v)
	}
	return j.loadRecent(state.Get(keyRecent))
}

// Close writes what was handed over, and closes the file.
func (j *Journal) Close() error {
	var err error
	j.once.Do(func() {
		close(j.quit)
		<-j.done
		j.handover.close()
		if err = j.db.Close(); err != nil {
			err = fmt.Errorf("close the journal of names: %w", err)
		}
	})
	return err
}

// guard runs fn, which uses the file, and takes the journal out of use if the
// file turns out to be damaged: the next start begins anew.
func (j *Journal) guard(fn func() error) (err error) {
	j.mu.Lock()
	err = j.broken
	j.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		err = fmt.Errorf("%w: %v", boltfile.ErrUnfit, r)
		j.mu.Lock()
		first := j.broken == nil
		j.broken = err
		j.room.Broadcast()
		j.mu.Unlock()
		if first {
			j.log.Error("the journal of names is damaged, and not used until the next start", "file", j.path, "err", err)
			_ = boltfile.SetAside(j.path)
		}
	}()
	return fn()
}
