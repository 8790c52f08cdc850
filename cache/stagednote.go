package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/p2pfs/p2pfs/chunk"
)

// MaxNote is the most bytes a note may have.
const MaxNote = 64 << 10

// errNote is the reason of every refusal to read a note.
var errNote = errors.New("unusable note")

// A note file is "p2pfsnot", the length of the note and its checksum
// (little-endian, 4 bytes each), and the note.
const (
	noteMagic  = "p2pfsnot"
	noteHeader = 16
)

func encodeNote(note []byte) []byte {
	b := make([]byte, noteHeader, noteHeader+len(note))
	copy(b, noteMagic)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(note)))
	binary.LittleEndian.PutUint32(b[12:], chunk.Sum(note))
	return append(b, note...)
}

// decodeNote returns the note in a file's bytes.
func decodeNote(b []byte) ([]byte, error) {
	switch {
	case len(b) < noteHeader || string(b[:8]) != noteMagic:
		return nil, fmt.Errorf("%w: %d bytes that are none", errNote, len(b))
	case int64(binary.LittleEndian.Uint32(b[8:])) != int64(len(b)-noteHeader):
		return nil, fmt.Errorf("%w: %d bytes, not as many as it says", errNote, len(b))
	case binary.LittleEndian.Uint32(b[12:]) != chunk.Sum(b[noteHeader:]):
		return nil, fmt.Errorf("%w: checksum", errNote)
	}
	return b[noteHeader:], nil
}

// SetNote replaces the file's note: bytes that say to the caller what the file
// is, at most MaxNote. A killed process leaves the old one or the new one. So
// does a power failure once a note was durable; with durable it is when SetNote
// returns, as is the file's name. Publish makes the last note durable.
// It works on a published file too, until Discard.
func (s *Staged) SetNote(note []byte, durable bool) error {
	if len(note) > MaxNote {
		return fmt.Errorf("note of staged file %x: %d bytes, more than %d", s.id, len(note), MaxNote)
	}
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	if err := s.setNote(note, durable); err != nil {
		return fmt.Errorf("note of staged file %x: %w", s.id, stagedError(s.r, err))
	}
	return nil
}

func (s *Staged) setNote(note []byte, durable bool) error {
	switch {
	case s.closed.Load() || s.c.life.Err() != nil:
		return chunk.ErrClosed
	case s.discarded.Load():
		return ErrSpent
	}
	path := s.r.stagedPath(s.id, ".note")
	f, err := s.c.openFD(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = s.c.writeAt(f, encodeNote(note), 0); err != nil {
		os.Remove(f.Name())
		return err
	}
	// A note that takes the place of a durable one is never a torn one.
	flushed := durable || s.noteSolid
	if flushed {
		s.r.journal.expect()
		err = s.r.journal.flush(f)
	}
	if err == nil {
		err = rename(f.Name(), path)
	}
	if flushed && (err != nil || !durable) {
		s.r.journal.forget()
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	s.noted, s.noteLoose, s.noteSolid = true, !flushed, s.noteSolid || durable
	if !durable {
		return nil
	}
	return s.r.journal.commit(s.r.dir + "/" + stagingDir)
}

// looseNote returns the note's file, open, if it has to be flushed; nil if not.
// noteMu is held.
func (s *Staged) looseNote() (*os.File, error) {
	if !s.noted || !s.noteLoose {
		return nil, nil
	}
	return s.c.openFD(s.r.stagedPath(s.id, ".note"), os.O_RDONLY)
}

// flushWithNote makes files, and a loose note, fit to be committed. noteMu is
// held.
func (s *Staged) flushWithNote(files ...*os.File) error {
	note, err := s.looseNote()
	if err != nil {
		return err
	}
	if note != nil {
		defer note.Close()
		files = append(files, note)
	}
	if err := s.r.journal.flush(files...); err != nil {
		return err
	}
	if s.noted {
		s.noteLoose, s.noteSolid = false, true
	}
	return nil
}
