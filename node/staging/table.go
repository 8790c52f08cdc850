package staging

import (
	"github.com/p2pfs/p2pfs/fs"
	"github.com/p2pfs/p2pfs/meta"
)

// enterLocked gives a file its place in the tables; a.mu is held.
func (a *Area) enterLocked(f *file) {
	a.files[f.id] = f
	a.nameLocked(f, f.at)
}

// nameLocked gives a file a name here; a.mu is held. One that is outdated is
// only told what it is to be published as.
func (a *Area) nameLocked(f *file, at meta.Place) {
	f.at = at
	if f.outdated.Load() {
		return
	}
	in := a.names[at.Dir]
	if in == nil {
		in = map[string]*file{}
		a.names[at.Dir] = in
	}
	in[at.Name] = f
}

// unnameLocked takes a file's name away; a.mu is held.
func (a *Area) unnameLocked(f *file) {
	in := a.names[f.at.Dir]
	if in[f.at.Name] != f {
		return
	}
	delete(in, f.at.Name)
	if len(in) == 0 {
		delete(a.names, f.at.Dir)
	}
}

// dropLocked takes a file out of the tables; a.mu is held.
func (a *Area) dropLocked(f *file) {
	a.unnameLocked(f)
	if a.files[f.id] == f {
		delete(a.files, f.id)
	}
}

// Find implements fs.Changes.
func (a *Area) Find(dir meta.InodeID, e meta.Entry) (fs.WriteFile, bool) {
	if f := a.use(dir, e); f != nil {
		return f, true
	}
	return nil, false
}

// useAt counts one use more of a file that has a name here; Close ends it. It
// returns false if it has that name no more.
func (a *Area) useAt(f *file, at meta.Place) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.names[at.Dir][at.Name] != f || f.removed || f.broken {
		return false
	}
	f.refs++
	return true
}

// use returns the file that an entry goes on as here, with one use more; nil:
// there is none.
func (a *Area) use(dir meta.InodeID, e meta.Entry) *file {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.currentLocked(dir, &e)
	if f != nil {
		f.refs++
	}
	return f
}

// has reports whether a file has a name only here.
func (a *Area) has(at meta.Place) bool {
	f, _ := a.named(at)
	return f != nil && f.never()
}

// occupied reports whether a directory holds names of files that are not
// published; a.mu is held.
func (a *Area) occupiedLocked(dir meta.InodeID) bool {
	for _, f := range a.names[dir] {
		if f.never() {
			return true
		}
	}
	return false
}
