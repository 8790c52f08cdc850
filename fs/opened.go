package fs

import "github.com/p2pfs/p2pfs/meta"

// Unfinished returns the entries of files that are open, whose bytes are not
// all on this machine, and that were opened under a name, or, if name is empty,
// under any name of the directory. It is quick.
func (f *FS) Unfinished(dir meta.InodeID, name string) []meta.Entry {
	t := &f.table
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []meta.Entry
	for _, inodes := range t.objects {
		for n := range inodes {
			open := n.file != nil && n.file.handles > 0 && n.file.nature == natureIncomplete && !n.file.complete
			if open && n.dir == dir && (name == "" || n.entry.Name == name) {
				out = append(out, n.entry)
			}
		}
	}
	return out
}
