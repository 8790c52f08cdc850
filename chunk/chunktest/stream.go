package chunktest

import (
	"context"
	"errors"
	"fmt"

	"github.com/p2pfs/p2pfs/chunk"
)

// Streaming is a Net that hands blocks on in pieces, too.
type Streaming struct{ *Net }

var _ chunk.Streamer = Streaming{}

// FetchTo implements chunk.Streamer: two pieces, the first a page less than
// the block.
func (s Streaming) FetchTo(ctx context.Context, from chunk.Peer, ref chunk.BlockRef, put func([]byte) error) (chunk.Received, error) {
	l, err := s.Fetch(ctx, from, []chunk.BlockRef{ref})
	if err != nil {
		return chunk.Received{}, err
	}
	defer l.Release()
	b := l.Blocks()[0]
	data := b.Data
	b.Data = nil
	if !b.Zero && int64(len(data)) != ref.Len {
		return b, fmt.Errorf("%w: %d bytes of %d", chunk.ErrCorrupt, len(data), ref.Len)
	}
	half := len(data) / 2
	for _, piece := range [][]byte{data[:half], data[half:]} {
		if len(piece) == 0 {
			continue
		}
		if err := put(piece); err != nil {
			return b, fmt.Errorf("hand on: %w", err)
		}
	}
	return b, nil
}

// stage writes one block of a File, until a Put takes the block over.
type stage struct {
	f     *File
	block int
	at    int64
}

// errTaken: a Put of the same block came meanwhile.
var errTaken = errors.New("block was put meanwhile")

var _ chunk.Stager = (*File)(nil)

// Stage implements chunk.Stager.
func (f *File) Stage(block int) (chunk.Stage, error) {
	if err := f.store.fault(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.have.Has(block) || f.staged[block] != nil {
		return nil, errors.New("block is here or being written")
	}
	if f.staged == nil {
		f.staged = map[int]*stage{}
	}
	st := &stage{f: f, block: block}
	f.staged[block] = st
	return st, nil
}

// Write implements chunk.Stage.
func (s *stage) Write(piece []byte) error {
	if err := s.f.store.writeFault(); err != nil {
		return err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.staged[s.block] != s {
		return errTaken
	}
	_, err := s.f.mem.WriteAt(piece, s.f.o.Block(s.block).Off+s.at)
	s.at += int64(len(piece))
	return err
}

// Commit implements chunk.Stage.
func (s *stage) Commit(sum uint32) error {
	if err := s.f.store.fault(); err != nil {
		s.end()
		return err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.staged[s.block] != s {
		return errTaken
	}
	delete(s.f.staged, s.block)
	s.f.puts++
	s.f.sums[s.block] = sum
	s.f.set(s.block)
	return nil
}

// Abort implements chunk.Stage.
func (s *stage) Abort() { s.end() }

// end takes the stage off its file, if it still is there.
func (s *stage) end() {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.staged[s.block] == s {
		delete(s.f.staged, s.block)
	}
}
