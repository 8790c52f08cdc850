package node

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

const (
	// siblingsFrom is how many files of a directory must be read in earnest
	// before the others are fetched, too.
	siblingsFrom = 2
	// siblingDirs bounds the directories that are remembered.
	siblingDirs = 64
	// siblingsAtOnce is how many files of a directory are fetched unasked side
	// by side: each comes from many peers.
	siblingsAtOnce = 2
)

// shardSuffixes are the names that the parts of a model end in.
var shardSuffixes = []string{".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".distcp", ".h5", ".msgpack", ".onnx", ".npz"}

func shardSuffix(name string) string {
	s := strings.ToLower(path.Ext(name))
	if slices.Contains(shardSuffixes, s) {
		return s
	}
	return ""
}

// siblings fetches the other shards of a model once some of them are read:
// whoever loads two of a directory loads the rest soon. It takes only room that
// is free, and evicts nothing.
type siblings struct {
	node *Node
	news chan chunk.Object // of which all is wanted; some may be lost

	mu     sync.Mutex
	dirs   map[siblingsOf]map[chunk.ObjectID]bool // read in earnest
	order  []siblingsOf
	active map[siblingsOf]bool
}

// siblingsOf is one kind of files in one directory.
type siblingsOf struct {
	dir    meta.InodeID
	suffix string
}

func newSiblings(n *Node) *siblings {
	return &siblings{node: n, news: make(chan chunk.Object, 64), dirs: map[siblingsOf]map[chunk.ObjectID]bool{}, active: map[siblingsOf]bool{}}
}

// whole is told that all of an object is wanted.
func (s *siblings) whole(o chunk.Object) {
	select {
	case s.news <- o:
	default:
	}
}

// Run works until ctx ends.
func (s *siblings) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-s.news:
			of, ok := s.place(ctx, o)
			if !ok || !s.note(of, o.ID) {
				continue
			}
			work.Go(func() {
				defer s.end(of)
				if err := s.fetch(ctx, of); err != nil && ctx.Err() == nil {
					s.node.log.Debug("other files of a model not fetched ahead", "err", err)
				}
			})
		}
	}
}

// place finds where an object has its name. Small ones have none that is known.
func (s *siblings) place(ctx context.Context, o chunk.Object) (siblingsOf, bool) {
	ctx, cancel := context.WithTimeout(ctx, s.node.cfg.MetaTimeout)
	defer cancel()
	r, err := s.node.catalog.Object(ctx, o.ID)
	if err != nil {
		return siblingsOf{}, false
	}
	for _, ref := range r.References {
		if suffix := shardSuffix(ref.Name); suffix != "" {
			return siblingsOf{ref.Dir, suffix}, true
		}
	}
	return siblingsOf{}, false
}

// note counts an object of which all is wanted, and reports whether the others
// are to be fetched now.
func (s *siblings) note(of siblingsOf, id chunk.ObjectID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := s.dirs[of]
	if read == nil {
		if len(s.order) == siblingDirs {
			delete(s.dirs, s.order[0])
			s.order = s.order[1:]
		}
		read = map[chunk.ObjectID]bool{}
		s.dirs[of] = read
		s.order = append(s.order, of)
	}
	read[id] = true
	if len(read) < siblingsFrom || s.active[of] {
		return false
	}
	s.active[of] = true
	return true
}

func (s *siblings) end(of siblingsOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, of)
}

// fetch brings the shards that are not here, in the order of their names, as
// far as there is free room.
func (s *siblings) fetch(ctx context.Context, of siblingsOf) error {
	entries, err := s.node.view.List(ctx, of.dir)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b meta.Entry) int { return strings.Compare(a.Name, b.Name) })
	room := s.node.freeRoom()
	var work sync.WaitGroup
	defer work.Wait()
	turn := make(chan struct{}, siblingsAtOnce)
	var errs []error
	var mu sync.Mutex
	for _, e := range entries {
		missing, ok := s.missing(of, e)
		if !ok {
			continue
		}
		if room -= missing; room < 0 {
			break
		}
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		work.Go(func() {
			defer func() { <-turn }()
			if err := s.node.getOne(ctx, e, func(int64) error { return nil }); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// missing returns how many bytes of a shard are not here; false for what is no
// shard, or all here.
func (s *siblings) missing(of siblingsOf, e meta.Entry) (int64, bool) {
	if e.Kind != meta.KindFile || shardSuffix(e.Name) != of.suffix || e.Size <= e.Object.BlockSize {
		return 0, false
	}
	info, ok := s.node.cache.Stat(e.Object.ID)
	if ok && info.Complete {
		return 0, false
	}
	return e.Size - info.LocalBytes, true
}

// freeRoom returns how many bytes could be stored with nothing evicted.
func (n *Node) freeRoom() int64 {
	st := n.cache.Stats()
	var free int64
	for _, r := range st.Roots {
		if r.State == "ok" {
			free += max(r.FreeBytes, 0)
		}
	}
	if st.LimitBytes > 0 {
		free = min(free, st.LimitBytes-st.UsedBytes)
	}
	return max(free, 0)
}
