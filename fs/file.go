package fs

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/meta"
)

// nature is the way an open inode is read.
type nature uint8

const (
	natureNone        nature = iota // not open
	natureEmpty                     // no bytes to read
	naturePassthrough               // by the kernel from the local file
	natureLocal                     // by answers with ranges of the local file
	natureIncomplete                // by Readers
	natureStaged                    // from and to a WriteFile
)

// file is what an inode has once it was opened. Guarded by table.mu.
type file struct {
	handles  int
	nature   nature
	backing  int32    // id the kernel knows the local file by; naturePassthrough
	local    *os.File // naturePassthrough, natureLocal
	release  func()   // gives the local file or the WriteFile back
	staged   *staged  // natureStaged
	cached   bool     // the kernel may hold pages read through this process
	stamp    stamp    // of the local file those pages came from; zero: of the object
	complete bool     // the object became complete while this was incomplete
}

// stamp tells whether a local file was changed behind our back: a registered
// file is edited where it lies.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// stampOf returns the stamp of an open file.
func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stamp{}, err
	}
	return stamp{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}, nil
}

// way is how a first open would read a file, before it is known whether
// another open came first.
type way struct {
	nature  nature
	backing int32
	local   *os.File
	release func()
	stamp   stamp
	entry   meta.Entry // that it was chosen for; natureStaged: of the WriteFile
	staged  *staged
	cut     bool // the WriteFile was emptied for this open
}

// join counts one more handle of an inode that is open and returns its file
// as it stands; ok is false when the inode is not open. One that is open in
// another way than for writing loses its name to a writer; one whose writer was
// killed, or that is outdated, has lost it: errMixed.
func (t *table) join(n *inode, write bool) (f file, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.file == nil || n.file.handles == 0 {
		return file{}, false, nil
	}
	if n.file.nature == natureStaged && (n.file.staged.broken || n.outdated()) {
		return file{}, false, errMixed
	}
	if write && n.file.nature != natureStaged {
		t.unname(n)
		t.want(n, time.Now())
		return file{}, false, errMixed
	}
	n.file.handles++
	return *n.file, true, nil
}

// settle makes w the nature of an inode that is not open and counts its first
// handle. first is false when another open settled it in the meantime; then w
// is not used. drop says that the kernel holds pages it has no use for now,
// keep that those it holds may be used.
func (t *table) settle(n *inode, w way) (f file, first, drop, keep bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.file == nil {
		n.file = &file{}
	}
	p := n.file
	if p.handles > 0 || w.nature != natureStaged && n.entry.Object.ID != w.entry.Object.ID {
		return file{}, false, false, false
	}
	switch w.nature {
	case naturePassthrough:
		drop, p.cached = p.cached, false
	case natureLocal:
		keep = !p.cached || p.stamp == w.stamp || p.stamp == stamp{}
		p.cached, p.stamp = true, w.stamp
	default:
		keep = !p.cached || p.stamp == stamp{}
		p.cached, p.stamp = true, stamp{}
	}
	p.handles, p.nature, p.complete = 1, w.nature, false
	p.backing, p.local, p.release, p.staged = w.backing, w.local, w.release, w.staged
	switch t.unlist(n); w.nature {
	case natureIncomplete:
		t.list(n)
	case natureStaged:
		t.become(n, &w.entry)
	}
	return *p, true, drop, keep
}

// leave counts one handle less. After the last one the inode is not open and
// what it held is returned for the caller to give back. now is what the file is
// by now if it was being written, else nil.
func (t *table) leave(n *inode, now *meta.Entry) (f file, last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := n.file
	if p.handles--; p.handles > 0 {
		return *p, false
	}
	f = *p
	if now != nil {
		t.become(n, now)
	}
	p.nature, p.backing, p.local, p.release, p.staged = natureNone, 0, nil, nil, nil
	return f, true
}

// stagedOf returns what the handles of an inode share that is being written;
// nil when it is not. The caller has a handle.
func (t *table) stagedOf(n *inode) *staged {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.file.staged
}
