package node

import (
	"context"
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
}

var _ fs.Bytes = (*objectBytes)(nil)

// Local implements fs.Bytes.
func (b *objectBytes) Local(ctx context.Context, o chunk.Object) (*os.File, func(), bool, error) {
	info, ok := b.cache.Stat(o.ID)
	if !ok || !info.Complete {
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
	return b.engine.Open(ctx, o)
}
