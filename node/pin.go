package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
	"github.com/p2pfs/p2pfs/node/nodepb"
)

// pinsChecked is how many pinned objects one pass of the collection looks for
// the names of.
const pinsChecked = 256

// errPinned: a copy is pinned here.
var errPinned = errors.New("it is pinned here: unpin it first ('p2pfs unpin'), or add --force")

// pin keeps what is here of files, and what will be, from eviction, or lets it
// be evicted again. All paths are found, or nothing is done.
func (n *Node) pin(ctx context.Context, r *nodepb.PinRequest) (*nodepb.PinReply, error) {
	f, err := n.find(ctx, r.GetPaths())
	if err != nil {
		return nil, err
	}
	if len(f.failed) > 0 {
		bad := f.failed[0]
		if bad.NotFound {
			return nil, fmt.Errorf("%s: %w", strings.TrimSuffix(bad.Error, ": "+meta.ErrNotFound.Error()), meta.ErrNotFound)
		}
		return nil, errors.New(bad.Error)
	}
	out := &nodepb.PinReply{}
	ids := make([]chunk.ObjectID, 0, len(f.files))
	for _, w := range f.files {
		out.Files++
		out.Bytes += w.entry.Size
		if w.entry.Size == 0 {
			continue
		}
		id := w.entry.Object.ID
		ids = append(ids, id)
		if n.cache.Pinned(id) == r.GetUnpin() {
			out.Changed++
		}
		if info, ok := n.cache.Stat(id); ok {
			out.LocalBytes += info.LocalBytes
		}
	}
	if r.GetUnpin() {
		return out, n.cache.Unpin(ctx, ids)
	}
	return out, n.cache.Pin(ctx, pinsOf(f.files))
}

// unpinNameless lets go of pinned objects that no name stands for any more: of
// some of them, each time others.
func (n *Node) unpinNameless(ctx context.Context) error {
	var gone []chunk.ObjectID
	for i, p := range n.cache.Pins() {
		if i == pinsChecked {
			break
		}
		var hint meta.Reference
		if dir, name, ok := placeOf(string(p.Note)); ok {
			hint = meta.Reference{Dir: dir, Name: name}
		}
		named, err := n.catalog.Referenced(ctx, p.Object, hint)
		if err != nil {
			return fmt.Errorf("look for the name of a pinned file: %w", err)
		}
		if !named {
			gone = append(gone, p.Object)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	n.log.Info("pinned files have lost their names and are no longer pinned", "files", len(gone))
	return n.cache.Unpin(ctx, gone)
}
