package node

import (
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/staging"
)

// keptNames is the view of the names for those who publish: collection has to
// know where the names of what is kept are. Objects of one block have no record
// that says so, and of the others it spares the question.
type keptNames struct {
	*meta.View
	collection *collection
}

var _ staging.View = keptNames{}

// Wrote implements staging.View.
func (v keptNames) Wrote(dir meta.InodeID, e meta.Entry) {
	v.saw(dir, e)
	v.View.Wrote(dir, e)
}

// Renamed implements staging.View.
func (v keptNames) Renamed(from, to meta.Place, m meta.Moved) {
	e := m.Entry
	e.Name = to.Name
	v.saw(to.Dir, e)
	v.View.Renamed(from, to, m)
}

func (v keptNames) saw(dir meta.InodeID, e meta.Entry) {
	if e.Kind == meta.KindFile && e.Size > 0 {
		v.collection.seenAt(e.Object.ID, meta.Place{Dir: dir, Name: e.Name})
	}
}
