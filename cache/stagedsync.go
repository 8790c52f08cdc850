package cache

import (
	"context"
	"fmt"
	"os"

	"github.com/p2pfs/p2pfs/chunk"
)

// Sync makes what was written so far durable on this machine, the note and the
// file's name included. It publishes nothing.
func (s *Staged) Sync(_ context.Context) error {
	if s.closed.Load() || s.c.life.Err() != nil {
		return fmt.Errorf("sync staged file %x: %w", s.id, chunk.ErrClosed)
	}
	s.r.journal.expect()
	if err := s.sync(); err != nil {
		return fmt.Errorf("sync staged file %x: %w", s.id, stagedError(s.r, err))
	}
	return nil
}

func (s *Staged) sync() error {
	files := []*os.File{s.data}
	if s.base != nil {
		files = append(files, s.base.f)
	}
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	return s.commitWithNote(files)
}
