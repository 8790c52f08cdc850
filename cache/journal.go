package cache

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// journal makes changes of files and names on one root durable, many at once.
//
// A file system with one journal (ext4, XFS) writes changes of names and
// allocations out in the order they were made. There flush only sends a file's
// bytes to the disk and waits until the file system has noted where they lie;
// commit then changes a file of its own and syncs it, which makes durable
// whatever was changed before it, by anybody: one flush of the disk for all
// who wait. On other file systems each file and directory is synced for itself.
type journal struct {
	dir     string
	ordered bool
	mark    *os.File // changed by commit; nil unless ordered

	turn  sync.Mutex // held by the one who commits; before mu
	marks int64      // guarded by turn
	took  time.Duration

	mu      sync.Mutex
	coming  int          // have said that they will commit soon
	waiting *commitGroup // not begun
	joined  chan struct{}
	commits uint64
}

// commitGroup is those who share one commit.
type commitGroup struct {
	done chan struct{}
	err  error
}

// markName is in the directory of staged files.
const markName = "mark"

// gatherMost bounds how long a commit waits for others that are on their way.
const gatherMost = 2 * time.Millisecond

func openJournal(dir string) (*journal, error) {
	j := &journal{dir: dir, ordered: oneJournal(dir), joined: make(chan struct{}, 1)}
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

// flush makes sure that the bytes of a file are durable once a later commit
// has ended. Files are best given together.
func (j *journal) flush(files ...*os.File) error {
	if !j.ordered {
		return together(files, fdatasync)
	}
	if len(files) == 0 {
		return nil
	}
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

// together does all at once, so that they share flushes of the disk, and
// returns an error if one of them had one.
func together[T any](all []T, do func(T) error) error {
	if len(all) == 1 {
		return do(all[0])
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() { errs[i] = do(x) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// expect says that the caller will commit soon, or call unexpect.
func (j *journal) expect() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.coming++
}

func (j *journal) unexpect() {
	j.mu.Lock()
	j.coming--
	j.mu.Unlock()
	j.nudge()
}

func (j *journal) nudge() {
	select {
	case j.joined <- struct{}{}:
	default:
	}
}

// commit meets one expect, and returns when every change made before it is
// durable: flushed bytes, and names in the given directories.
func (j *journal) commit(dirs ...string) error {
	if !j.ordered {
		j.unexpect()
		return together(dirs, syncDir)
	}
	j.mu.Lock()
	j.coming--
	g := j.waiting
	lead := g == nil
	if lead {
		g = &commitGroup{done: make(chan struct{})}
		j.waiting = g
	}
	j.mu.Unlock()
	j.nudge()
	if lead {
		j.lead(g)
	}
	<-g.done
	return g.err
}

// lead commits for a group: after the commit under way, which may have begun
// before the group's changes were made.
func (j *journal) lead(g *commitGroup) {
	j.turn.Lock()
	defer j.turn.Unlock()
	j.gather()
	j.mu.Lock()
	j.waiting = nil
	j.commits++
	j.mu.Unlock()
	begin := time.Now()
	g.err = j.syncMark()
	j.took = (3*j.took + time.Since(begin)) / 4
	close(g.done)
}

// gather waits a little for those who are about to join: a commit of their own
// would cost them, and those after them, far more.
func (j *journal) gather() {
	limit := min(j.took/2, gatherMost)
	if limit <= 0 {
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		j.mu.Lock()
		coming := j.coming
		j.mu.Unlock()
		if coming == 0 {
			return
		}
		select {
		case <-j.joined:
		case <-t.C:
			return
		}
	}
}

// syncMark changes a file and waits until that is durable. Its size is what
// even a sync of data alone must not lose.
func (j *journal) syncMark() error {
	j.marks++
	if err := j.mark.Truncate(1 + j.marks%4095); err != nil {
		return err
	}
	return fdatasync(j.mark)
}
