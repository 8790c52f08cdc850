package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"

	"github.com/p2pfs/p2pfs/chunk"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Source is one file to be registered.
type Source struct {
	Object chunk.Object
	Path   string       // absolute; symbolic links in it are resolved now, once
	ID     Identity     // of the file that was examined
	Zero   chunk.Bitmap // blocks known to be zero; length 0: none
	Note   string       // the caller's, told by Info; may be any bytes
}

// RegisterInPlace makes this node the source of files where they lie. All are
// recorded, and would survive a power failure, when it returns; or none.
// Registering an object again moves it to the new path.
func (c *Cache) RegisterInPlace(ctx context.Context, sources []Source) error {
	p := c.places
	recs := make([]record, len(sources))
	res := make(resolver)
	for i, s := range sources {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("register files: %w", err)
		}
		var err error
		if recs[i], err = s.record(res); err != nil {
			return err
		}
	}
	// The database is a tree: filling it in its own order is several
	// times faster.
	sort.Slice(recs, func(i, j int) bool {
		return string(recs[i].obj.ID[:]) < string(recs[j].obj.ID[:])
	})
	return p.write(recs)
}

func (s Source) record(res resolver) (record, error) {
	if err := s.Object.Validate(); err != nil {
		return record{}, fmt.Errorf("register %s: %w", s.Path, err)
	}
	if s.Object.Size != s.ID.Size || s.Object.Size == 0 {
		return record{}, fmt.Errorf("register %s: an object of %d bytes for a file of %d", s.Path, s.Object.Size, s.ID.Size)
	}
	if n := s.Zero.Len(); n != 0 && n != s.Object.Blocks() {
		return record{}, fmt.Errorf("register %s: a map of %d blocks for %d", s.Path, n, s.Object.Blocks())
	}
	path, err := res.resolve(s.Path)
	if err != nil {
		return record{}, err
	}
	return record{obj: s.Object, path: path, id: s.ID, zero: s.Zero, note: s.Note}, nil
}

// write stores records in one transaction and forgets what memory knew of
// them.
func (p *places) write(recs []record) error {
	added := make(map[chunk.SetID]int)
	n := 0
	err := p.db.Update(func(tx *bolt.Tx) error {
		objects, members := tx.Bucket(bucketObjects), tx.Bucket(bucketMembers)
		keys := make([][]byte, 0, len(recs))
		for _, r := range recs {
			if old := objects.Get(r.obj.ID[:]); old != nil {
				o, err := decodeRecord(old)
				if err != nil {
					return err
				}
				if !sameBytes(o.obj, r.obj) {
					return fmt.Errorf("object %s is registered with other facts", r.obj.ID.Short())
				}
				r.damaged = o.damaged
			} else {
				added[r.obj.Set]++
				n++
			}
			if err := objects.Put(r.obj.ID[:], r.encode()); err != nil {
				return err
			}
			keys = append(keys, memberKey(r.obj.Set, r.obj.ID))
		}
		sort.Slice(keys, func(i, j int) bool { return string(keys[i]) < string(keys[j]) })
		for _, k := range keys {
			if err := members.Put(k, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("register %d files: %w", len(recs), p.dbError(err))
	}
	p.mu.Lock()
	for s, k := range added {
		p.bySet[s] += k
	}
	p.total += n
	p.mu.Unlock()
	for _, r := range recs {
		p.detach(r.obj.ID)
	}
	return nil
}

// dbError tells a closed database and a full disk by the errors callers know.
func (p *places) dbError(err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return fmt.Errorf("%w: %w", chunk.ErrClosed, err)
	case diskFault(err):
		return fmt.Errorf("%w: %w", chunk.ErrNoSpace, err)
	}
	return err
}

// ForgetInPlace ends the service of registered files, durably. The files stay.
// Objects that are not registered are passed over.
func (c *Cache) ForgetInPlace(ctx context.Context, objects []chunk.ObjectID) error {
	p := c.places
	gone := make(map[chunk.ObjectID]chunk.SetID, len(objects))
	err := p.db.Update(func(tx *bolt.Tx) error {
		all, members := tx.Bucket(bucketObjects), tx.Bucket(bucketMembers)
		for _, id := range objects {
			if err := ctx.Err(); err != nil {
				return err
			}
			b := all.Get(id[:])
			if b == nil {
				continue
			}
			r, err := decodeRecord(b)
			if err != nil {
				return err
			}
			gone[id] = r.obj.Set
			if err := all.Delete(id[:]); err != nil {
				return err
			}
			if err := members.Delete(memberKey(r.obj.Set, id)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget registered files: %w", p.dbError(err))
	}
	p.mu.Lock()
	for _, set := range gone {
		if p.bySet[set]--; p.bySet[set] <= 0 {
			delete(p.bySet, set)
		}
		p.total--
	}
	p.mu.Unlock()
	for id := range gone {
		p.detach(id)
		os.Remove(p.root.path(id, ".sums"))
	}
	return nil
}

// ForgetInPlaceSet is ForgetInPlace for every registered file of a set. It
// returns what they were.
func (c *Cache) ForgetInPlaceSet(ctx context.Context, set chunk.SetID) ([]chunk.ObjectID, error) {
	ids, err := c.places.members(set)
	if err != nil {
		return nil, err
	}
	return ids, c.ForgetInPlace(ctx, ids)
}
