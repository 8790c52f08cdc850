package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
)

// objectBytes is what the mount reads through: the local file of an object
// that is all here, else the engine.
type objectBytes struct {
	cache  *cache.Cache
	engine *chunk.Engine
	source *sources
}

var _ fs.Bytes = (*objectBytes)(nil)

// Local implements fs.Bytes.
func (b *objectBytes) Local(ctx context.Context, o chunk.Object) (*os.File, func(), bool, error) {
	info, ok := b.cache.Stat(o.ID)
	if !ok || !info.Complete || info.InPlace && b.source.elsewhere(ctx, o) {
		return nil, nil, false, nil
	}
	f, err := b.cache.Open(ctx, o)
	if err != nil {
		return nil, nil, false, err
	}
	if !f.Complete() { // evicted since
		return nil, nil, false, f.Close()
	}
	return f.Reader(), func() { f.Close() }, true, nil
}

// Open implements fs.Bytes.
func (b *objectBytes) Open(ctx context.Context, o chunk.Object) (fs.Reader, error) {
	if err := b.source.check(ctx, o); err != nil {
		return nil, err
	}
	return b.engine.Open(ctx, o)
}

// sources is the cache as the engine sees it: a registered file that cannot be
// read any more is fetched from others, into a file of the cache beside it.
type sources struct {
	cache  *cache.Cache
	locate func(context.Context, chunk.SetID) ([]chunk.Provider, error)
	self   chunk.NodeID
}

var _ chunk.Store = (*sources)(nil)

// Open implements chunk.Store.
func (s *sources) Open(ctx context.Context, o chunk.Object) (chunk.File, error) {
	if s.elsewhere(ctx, o) {
		return s.cache.OpenFetched(ctx, o)
	}
	return s.cache.Open(ctx, o)
}

// elsewhere reports whether an object is registered here and has to be read
// from others: its file is gone, or no longer as long as it was and others
// have the bytes. An edit that leaves the length is shown, as it is by the file
// itself.
func (s *sources) elsewhere(ctx context.Context, o chunk.Object) bool {
	state, size, ok := s.cache.Source(o.ID)
	switch {
	case !ok || state == cache.SourceOK:
		return false
	case state == cache.SourceGone:
		return true
	case size == o.Size:
		return false
	}
	others, err := s.others(ctx, o)
	return err == nil && others
}

// check returns chunk.ErrSourceChanged at once for a registered file that is
// gone and that nobody else provides.
func (s *sources) check(ctx context.Context, o chunk.Object) error {
	state, _, ok := s.cache.Source(o.ID)
	if !ok || state != cache.SourceGone {
		return nil
	}
	others, err := s.others(ctx, o)
	if err != nil || others { // unknown: whoever is known may be asked
		return nil
	}
	f, err := s.cache.OpenFetched(ctx, o)
	if err != nil {
		return nil
	}
	defer f.Close()
	if f.Complete() {
		return nil
	}
	_, err = s.cache.Open(ctx, o)
	if !errors.Is(err, chunk.ErrSourceChanged) {
		return nil
	}
	return fmt.Errorf("%w, and no other node provides it", err)
}

func (s *sources) others(ctx context.Context, o chunk.Object) (bool, error) {
	providers, err := s.locate(ctx, o.Set)
	if err != nil {
		return false, err
	}
	for _, p := range providers {
		if p.Node != s.self {
			return true, nil
		}
	}
	return false, nil
}
