package staging

import "github.com/p2pfs/p2pfs/meta"

// A file of which nothing is unpublished may stay open for long, by who only
// reads it. When another node publishes it meanwhile, its content here is that
// of an older publish, and must not be what opens find, nor what a later writer
// changes. Such a file is outdated: it leaves the tables, and the next open goes
// to what is published. Who has it open keeps it as it was; what is written
// through it all the same is published by its close, as another node's would be,
// and until then opens go to what is published.

// Outdated implements fs.WriteFile.
func (f *file) Outdated() bool { return f.outdated.Load() }

// currentLocked returns the file that an entry of a directory goes on as here;
// nil: none. One that the entry shows to be outdated is taken out of the tables.
// a.mu is held.
func (a *Area) currentLocked(dir meta.InodeID, e *meta.Entry) *file {
	f := a.files[e.Inode]
	if f == nil || !f.overtakenLocked(dir, e) {
		return f
	}
	f.outdated.Store(true)
	a.dropLocked(f)
	return nil
}

// overtakenLocked reports whether an entry of a directory is a later publish
// than the content of the file, all of which is published. What this node is
// just publishing is no such entry, nor is an older one that was looked up
// before that, nor one of which only the attributes have changed. Area.mu is
// held.
func (f *file) overtakenLocked(dir meta.InodeID, e *meta.Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.published || f.unpublishedLocked() || f.entry == nil || e.Object.ID == f.object.ID {
		return false
	}
	// Versions are those of a directory. The entry that is known of the file is
	// another publish where a rename or a change of attributes found it there.
	return e.Version > f.entry.Version || dir != f.at.Dir || f.entry.Object.ID != f.object.ID
}
