package cache

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// journal makes changes of files and names on one root durable, many at once.
// Who needs that calls expect, and then commit or forget.
//
// A file system with one journal (ext4, XFS) writes changes of names and
// allocations out in the order they were made. There commit sends a file's
// bytes to the disk, waits until the file system has noted where they lie, and
// then changes a file of its own and syncs it, which makes durable whatever was
// changed before it, by anybody: one flush of the disk for all who wait. On
// other file systems it waits for all of the file system if that serves several
// and there is little to write, else for each file and directory, all at once.
type journal struct {
	dir     string
	ordered bool
	root    *os.File // of the file system; not ours to close
	mark    *os.File // changed by commit; nil unless ordered
	marks   int64    // by the leader
	group   gathering
	alone   atomic.Int64 // unix ns until which a sync of the whole file system is not worth it
}

// markName is in the directory of staged files.
const markName = "mark"

const (
	// syncMembers is how many must share a sync of the whole file system for
	// it to be cheaper than one for each file.
	syncMembers = 3
	// syncMost is how much all of the machine may have to write for that: a
	// small file must not wait for large ones.
	syncMost = 4 << 20
	// syncAlone is for how long it is not looked at again.
	syncAlone = 100 * time.Millisecond
)

func openJournal(dir string, fsys *os.File) (*journal, error) {
	j := &journal{dir: dir, ordered: oneJournal(dir), root: fsys}
	j.group.joined = make(chan struct{}, 1)
	if !j.ordered {
		return j, nil
	}
	var err error
	if j.mark, err = os.OpenFile(filepath.Join(dir, stagingDir, markName), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open cache root: %w", err)
	}
	return j, nil
}

func (j *journal) close() {
	if j != nil && j.mark != nil {
		j.mark.Close()
	}
}

// oneJournal reports whether the file system of dir makes changes of different
// files durable in the order they were made. ext4 does with a journal only.
func oneJournal(dir string) bool {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(dir, &fs) != nil || unix.Stat(dir, &st) != nil {
		return false
	}
	switch fs.Type {
	case unix.XFS_SUPER_MAGIC:
		return true
	case unix.EXT4_SUPER_MAGIC:
		b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/uevent", unix.Major(st.Dev), unix.Minor(st.Dev)))
		if err != nil {
			return false
		}
		for line := range bytes.Lines(b) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "DEVNAME="); ok {
				found, _ := filepath.Glob("/proc/fs/jbd2/" + strings.ReplaceAll(name, "/", "!") + "-*")
				return len(found) > 0
			}
		}
	}
	return false
}

// flushAhead does most of the work of a later commit of a large file.
func (j *journal) flushAhead(f *os.File) error {
	if j.ordered {
		return writeOut([]*os.File{f})
	}
	return fdatasync(f)
}

// writeOut sends files to the disk, and returns when they and the metadata
// that leads to them have been handed over.
func writeOut(files []*os.File) error {
	const before, write, after = unix.SYNC_FILE_RANGE_WAIT_BEFORE, unix.SYNC_FILE_RANGE_WRITE, unix.SYNC_FILE_RANGE_WAIT_AFTER
	for _, flags := range []int{write, before | write | after} {
		for _, f := range files {
			if err := unix.SyncFileRange(int(f.Fd()), 0, 0, flags); err != nil {
				return &os.PathError{Op: "sync_file_range", Path: f.Name(), Err: err}
			}
		}
	}
	return nil
}

// expect says that the caller will commit soon, or call forget.
func (j *journal) expect() { j.group.expect(1) }

// forget takes expect back.
func (j *journal) forget() { j.group.expect(-1) }

// commit meets one expect, and returns when what was changed before it is
// durable: the bytes of files, and names in directories. An order among these
// is not kept.
func (j *journal) commit(files []*os.File, dirs ...string) error {
	if j.ordered {
		if err := writeOut(files); err != nil {
			j.forget()
			return err
		}
		return j.group.join(j.syncMark)
	}
	if time.Now().UnixNano() < j.alone.Load() {
		j.forget()
	} else if j.group.join(j.syncAll) == nil {
		return nil
	}
	waits := make([]func() error, 0, len(files)+len(dirs))
	for _, f := range files {
		waits = append(waits, func() error { return fdatasync(f) })
	}
	for _, dir := range dirs {
		waits = append(waits, func() error { return syncDir(dir) })
	}
	return together(waits)
}

// together does all at once, so that they share flushes of the disk, and
// returns an error if one of them had one.
func together(all []func() error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, do := range all[1:] {
		wg.Go(func() { errs[i+1] = do() })
	}
	errs[0] = all[0]()
	wg.Wait()
	return errors.Join(errs...)
}

// syncMark changes a file and waits until that is durable. Its size is what
// even a sync of data alone must not lose.
func (j *journal) syncMark(int) error {
	j.marks++
	if err := j.mark.Truncate(1 + j.marks%4095); err != nil {
		return err
	}
	return fdatasync(j.mark)
}

// errAlone: each file is better synced for itself.
var errAlone = errors.New("not worth a sync of the whole file system")

// syncAll syncs the file system for so many. An error may be about anything on
// it, or say that nothing was done; each file then tells its own.
func (j *journal) syncAll(members int) error {
	if members < syncMembers {
		return errAlone
	}
	if dirtyBytes() > syncMost {
		j.alone.Store(time.Now().Add(syncAlone).UnixNano())
		return errAlone
	}
	return unix.Syncfs(int(j.root.Fd()))
}

// dirtyBytes returns what the machine has yet to write to its disks; a lot if
// that is not known.
func dirtyBytes() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return math.MaxInt64
	}
	var sum int64
	found := 0
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "Dirty:" || f[0] == "Writeback:") {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				sum += n << 10
				found++
			}
		}
	}
	if found != 2 {
		return math.MaxInt64
	}
	return sum
}
