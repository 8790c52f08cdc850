package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// handoverMax bounds one of the two files, for the time in which the database
// takes nothing.
const handoverMax = 64 << 20

var errHandoverFull = errors.New("there is too much that the database did not take")

// handover is where changes are between the call that brings them and the
// database: two plain files in turn, so that one can be emptied when the
// database has what is in it, while the other takes what comes. They are never
// synced: what was written outlives the process, and not the machine.
//
// Each record has the number of the turn it was written in. The database says,
// in the transaction that takes a turn's changes in, which was the last; so
// records that are still there after that are known.
type handover struct {
	mu    sync.Mutex // held while a record is written (callers would wait for each other in the kernel anyway); before Journal.mu
	files [2]handoverFile
	turn  uint64 // its records go into files[turn%2]
	fails bool   // the last write did, which is in the log
	buf   []byte

	behind bool // the database did not take what is in both; guarded by Journal.flushing
}

// handoverFile is one of the two. Writes to a nil file fail.
type handoverFile struct {
	f    *os.File
	size int64 // of its whole records
	torn bool  // there may be more behind them
}

// open opens both files, and returns the changes in them that come after a
// turn, in order.
func (h *handover) open(dir string, taken uint64) (found []change, err error) {
	var all []turned
	for i := range h.files {
		f, openErr := os.OpenFile(filepath.Join(dir, fmt.Sprintf("journal.log%d", i)), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		if openErr != nil {
			err = openErr
			continue
		}
		part, size, readErr := readRecords(f)
		if readErr != nil {
			err = readErr
		}
		h.files[i] = handoverFile{f: f, size: size, torn: true}
		all = append(all, part...)
	}
	found, last := inOrder(all, taken)
	h.turn = max(taken, last) + 1
	return found, err
}

// read returns the changes in both files that come after a turn, in order. A
// record that is being written is not seen.
func (h *handover) read(after uint64) (found []change, err error) {
	var all []turned
	for i := range h.files {
		if h.files[i].f == nil {
			continue
		}
		part, _, readErr := readRecords(h.files[i].f)
		if readErr != nil {
			err = readErr
		}
		all = append(all, part...)
	}
	found, _ = inOrder(all, after)
	return found, err
}

// readRecords returns the whole records of a file, and their length.
func readRecords(f *os.File) (found []turned, size int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	b := make([]byte, st.Size())
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	found, whole := decodeFrames(b[:n])
	return found, int64(whole), err
}

// inOrder returns the changes of turns after one, and the last turn of all.
func inOrder(all []turned, after uint64) (found []change, last uint64) {
	slices.SortStableFunc(all, func(a, b turned) int { return cmp.Compare(a.turn, b.turn) })
	for _, t := range all {
		if last = t.turn; t.turn > after {
			found = append(found, t.change)
		}
	}
	return found, last
}

// append writes a change; one of very many names in several pieces. h.mu is
// held.
func (h *handover) append(c *change) error {
	rest := *c
	for {
		h.buf = appendFrame(h.buf[:0], h.turn, &rest)
		if err := h.files[h.turn%2].write(h.buf); err != nil || len(rest.sets) == 0 {
			return err
		}
	}
}

func (f *handoverFile) write(b []byte) error {
	if f.size+int64(len(b)) > handoverMax {
		return errHandoverFull
	}
	if f.torn {
		if err := f.f.Truncate(f.size); err != nil {
			return err
		}
	}
	f.torn = true
	if _, err := f.f.Write(b); err != nil {
		return err
	}
	f.torn, f.size = false, f.size+int64(len(b))
	return nil
}

// empty empties a file. Where that fails the turns tell what it has.
func (f *handoverFile) empty() {
	if (f.size > 0 || f.torn) && f.f.Truncate(0) == nil {
		f.size, f.torn = 0, false
	}
}

// close closes both files.
func (h *handover) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.files {
		_ = h.files[i].f.Close() // nothing is left to be written; nil is fine
	}
}
