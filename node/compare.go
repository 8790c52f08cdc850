package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/p2pfs/p2pfs/cache"
	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// bindBytes is about how much another node is asked to read in one call, to
// bind the sums of blocks that nobody has fetched yet.
const bindBytes = 64 << 20

// errUnknown: an object cannot be compared with, for its bytes are not known
// here and nobody who holds them answers.
var errUnknown = errors.New("cannot be compared: no node that holds it can be asked for its checksums")

// ofAll returns the sum of every block of an object: what is bound in the
// store, what is here, and for the rest what its holders say, keepers first;
// those read what they have not read yet.
func (f *facts) ofAll(ctx context.Context, o chunk.Object) ([]uint32, error) {
	w := &wanted{o: o, known: chunk.NewBitmap(o.Blocks()), sums: make([]uint32, o.Blocks())}
	if held, _, ok := f.own.Held(o.ID); ok {
		w.from(held)
	}
	if o.Blocks() > 1 && !w.known.Full() { // others have no record of their own
		if err := f.fromStore(ctx, w); err != nil {
			return nil, err
		}
	}
	if !w.known.Full() {
		if err := f.fromHolders(ctx, w); err != nil {
			return nil, err
		}
	}
	if !w.known.Full() { // registered here, from another path perhaps
		f.bindOwn(ctx, w)
	}
	if !w.known.Full() {
		return nil, errUnknown
	}
	return w.sums, nil
}

// wanted gathers the sums of one object.
type wanted struct {
	o     chunk.Object
	known chunk.Bitmap
	sums  []uint32
}

func (w *wanted) set(block int, sum uint32) {
	w.known.Set(block)
	w.sums[block] = sum
}

// from takes what is bound here.
func (w *wanted) from(held chunk.Held) {
	for i := range w.sums {
		if sum, ok := held.Sum(i); ok && !w.known.Has(i) {
			w.set(i, sum)
		}
	}
}

// next returns the first unknown block at or after a block, or -1.
func (w *wanted) next(block int) int {
	for i := block; i < w.o.Blocks(); i++ {
		if !w.known.Has(i) {
			return i
		}
	}
	return -1
}

// fromStore takes what keepers have written to the store.
func (f *facts) fromStore(ctx context.Context, w *wanted) error {
	zeros := newZeroSums(w.o)
	for g := range meta.Groups(w.o) {
		sums, err := f.catalog.SumGroup(ctx, w.o, g)
		if err != nil {
			return err
		}
		for i := range sums.Known.Len() {
			block := g*meta.GroupBlocks + i
			switch {
			case sums.Known.Has(i):
				w.set(block, sums.Sums[i])
			case sums.Zero.Has(i):
				w.set(block, zeros.of(block))
			}
		}
	}
	return nil
}

// fromHolders asks keepers, then others, for what is still unknown.
func (f *facts) fromHolders(ctx context.Context, w *wanted) error {
	providers, err := f.locate(ctx, w.o.Set)
	if err != nil {
		return err
	}
	for _, keepers := range []bool{true, false} {
		for _, p := range providers {
			if p.Keeper != keepers || p.Node == f.self {
				continue
			}
			if err := f.fromPeer(ctx, w, p.Peer); err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if w.known.Full() {
				return nil
			}
		}
	}
	return nil
}

// fromPeer asks one node, a stretch of unknown blocks at a time, until it has
// nothing more to say.
func (f *facts) fromPeer(ctx context.Context, w *wanted, p chunk.Peer) error {
	count := int(min(max(bindBytes/w.o.BlockSize, 1), maxSums))
	for at := w.next(0); at >= 0; at = w.next(at) {
		n := min(count, w.o.Blocks()-at)
		got, err := f.peers.sums(ctx, p, w.o, at, n, true)
		if err != nil {
			return err
		}
		for block, sum := range got {
			if !w.known.Has(block) {
				w.set(block, sum)
			}
		}
		at += n
	}
	return nil
}

// bindOwn reads what is registered here. A source that has changed leaves its
// blocks unknown.
func (f *facts) bindOwn(ctx context.Context, w *wanted) {
	held, _, ok := f.own.Held(w.o.ID)
	if !ok {
		return
	}
	for at := w.next(0); at >= 0 && ctx.Err() == nil; at = w.next(at + 1) {
		if !held.Has(at) || f.own.Bind(ctx, w.o.ID, at) != nil {
			return
		}
		sum, ok := held.Sum(at)
		if !ok {
			return
		}
		w.set(at, sum)
	}
}

// zeroSums knows the sums of an object's blocks that are all zero.
type zeroSums struct {
	o    chunk.Object
	full uint32
	has  bool
}

func newZeroSums(o chunk.Object) *zeroSums { return &zeroSums{o: o} }

func (z *zeroSums) of(block int) uint32 {
	n := z.o.Block(block).Len
	if n == z.o.BlockSize && z.has {
		return z.full
	}
	var page [chunk.MinBlockSize]byte
	sum := uint32(0)
	for left := n; left > 0; {
		k := min(left, int64(len(page)))
		sum = chunk.AddSum(sum, page[:k])
		left -= k
	}
	if n == z.o.BlockSize {
		z.full, z.has = sum, true
	}
	return sum
}

// compareBuffer is how much is read of a file at once.
const compareBuffer = 1 << 20

// matches reports whether the open file s has the blocks whose sums are given.
// It returns chunk.ErrSourceChanged when the file is not the one that was
// scanned, or changes while it is read.
func matches(ctx context.Context, f *os.File, s scanned, o chunk.Object, sums []uint32) (bool, error) {
	same := func() error {
		now, err := cache.IdentityOf(f)
		if err == nil && now != s.id {
			err = fmt.Errorf("%s changed while it was compared: %w", s.path, chunk.ErrSourceChanged)
		}
		return err
	}
	if err := same(); err != nil {
		return false, err
	}
	zeros, zero := newZeroSums(o), s.zeroOf(o)
	buf := make([]byte, min(compareBuffer, o.BlockSize))
	for block := range o.Blocks() {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		var sum uint32
		if zero.Has(block) {
			sum = zeros.of(block)
		} else {
			var err error
			if sum, err = sumOf(f, o.Block(block), buf); err != nil {
				return false, fmt.Errorf("read %s: %w", s.path, err)
			}
		}
		if sum != sums[block] {
			return false, same()
		}
	}
	return true, same()
}

func sumOf(f *os.File, span chunk.Span, buf []byte) (uint32, error) {
	sum := uint32(0)
	for off := span.Off; off < span.End(); {
		b := buf[:min(int64(len(buf)), span.End()-off)]
		if _, err := f.ReadAt(b, off); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		sum = chunk.AddSum(sum, b)
		off += int64(len(b))
	}
	return sum, nil
}

// zeroOf returns the blocks of o that lie in holes of the file; length 0 if
// that is not known of blocks of its size.
func (s scanned) zeroOf(o chunk.Object) chunk.Bitmap {
	if s.object.BlockSize != o.BlockSize {
		return chunk.Bitmap{}
	}
	return s.zero
}
