package meta

// LocalTable is what this machine remembers of names when the store cannot be
// asked. It is a memory, never an authority: the View puts into it what the
// store said and asks it only in an outage. Put, Remove, PutDir and ForgetDir
// are quick and may be written later; they keep the slices they are given,
// which nobody changes. Safe for concurrent use. meta/local implements it.
type LocalTable interface {
	// Entry returns the last known entry of a name.
	Entry(dir InodeID, name string) (Entry, bool)
	// List returns the entries of a directory, if it was wholly known. The
	// caller must not change them.
	List(dir InodeID) ([]Entry, bool)
	// Put remembers an entry.
	Put(dir InodeID, e Entry)
	// Remove forgets a name that is gone.
	Remove(dir InodeID, name string)
	// PutDir remembers all of a directory, sorted by name, as of a version;
	// until ForgetDir it is wholly known.
	PutDir(dir InodeID, version uint64, entries []Entry)
	// ForgetDir says that changes of a directory were missed: its names stay
	// known, but perhaps not all.
	ForgetDir(dir InodeID)
}

// noTable remembers nothing.
type noTable struct{}

var _ LocalTable = noTable{}

func (noTable) Entry(InodeID, string) (Entry, bool) { return Entry{}, false }
func (noTable) List(InodeID) ([]Entry, bool)        { return nil, false }
func (noTable) Put(InodeID, Entry)                  {}
func (noTable) Remove(InodeID, string)              {}
func (noTable) PutDir(InodeID, uint64, []Entry)     {}
func (noTable) ForgetDir(InodeID)                   {}
