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

// A note file begins with room for the map of the object that the file becomes:
// small ones are published with one file less (see shareMap). What follows are
// notes, each under "p2pfsnot", its length and a checksum of the staged file's
// id and the note (little-endian, 4 bytes each). The last whole one counts, so
// that a death while one is written leaves the one before.
const (
	noteMagic  = "p2pfsnot"
	noteHeader = 16
	noteAt     = 2 * sectorSize
	// noteLog is how long a file becomes before it is begun anew.
	noteLog = noteAt + 2*(noteHeader+MaxNote)
)

func encodeNote(id uint64, note []byte) []byte {
	b := make([]byte, noteHeader, noteHeader+len(note))
	copy(b, noteMagic)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(note)))
	binary.LittleEndian.PutUint32(b[12:], noteSum(id, note))
	return append(b, note...)
}

func noteSum(id uint64, note []byte) uint32 {
	return chunk.AddSum(chunk.Sum(binary.LittleEndian.AppendUint64(nil, id)), note)
}

// decodeNotes returns the note that counts in the bytes of a file. Those behind
// the last whole one are ignored.
func decodeNotes(id uint64, b []byte) (note []byte, err error) {
	if len(b) < noteAt {
		return nil, fmt.Errorf("%w: %d bytes", errNote, len(b))
	}
	err = fmt.Errorf("%w: none is whole", errNote)
	for b = b[noteAt:]; len(b) >= noteHeader && string(b[:8]) == noteMagic; {
		n := int64(binary.LittleEndian.Uint32(b[8:]))
		if n > int64(len(b)-noteHeader) {
			break
		}
		next := b[noteHeader : noteHeader+n]
		if binary.LittleEndian.Uint32(b[12:]) != noteSum(id, next) {
			break
		}
		note, err = next, nil
		b = b[noteHeader+n:]
	}
	return note, err
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
	rec := encodeNote(s.id, note)
	if s.noteFile == nil || s.noteEnd+int64(len(rec)) > noteLog {
		if err := s.beginNotes(rec); err != nil {
			return err
		}
	} else {
		if _, err := s.c.writeAt(s.noteFile, rec, s.noteEnd); err != nil {
			return err
		}
		s.noteEnd += int64(len(rec))
	}
	s.noted, s.noteLoose = true, true
	if !durable {
		return nil
	}
	s.r.journal.expect()
	return s.commitWithNote(nil)
}

// beginNotes makes the note file, or a new one in place of an old one, with one
// note in it. noteMu is held.
func (s *Staged) beginNotes(rec []byte) (err error) {
	path := s.r.stagedPath(s.id, ".note")
	name := path
	if s.noted {
		name += ".tmp"
	}
	f, err := s.c.openFD(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = s.c.writeAt(f, rec, noteAt)
	if err == nil && s.noteSolid { // what takes the place of a durable note is never torn
		err = fdatasync(f)
	}
	if err == nil && s.noted {
		err = rename(name, path)
	}
	if err != nil {
		f.Close()
		os.Remove(name)
		return err
	}
	s.closeNotes()
	s.noteFile, s.noteEnd = f, noteAt+int64(len(rec))
	return nil
}

func (s *Staged) closeNotes() {
	if s.noteFile != nil {
		s.noteFile.Close()
		s.noteFile = nil
	}
}

// notes returns the note file, opened if it is not. noteMu is held.
func (s *Staged) notes() (*os.File, error) {
	if s.noteFile != nil {
		return s.noteFile, nil
	}
	return s.c.openFD(s.r.stagedPath(s.id, ".note"), os.O_RDONLY)
}

// commitWithNote makes files and a loose note durable, and the names in the
// staging directory and dirs. It meets one expect of the journal's, whatever it
// returns. noteMu is held.
func (s *Staged) commitWithNote(files []*os.File, dirs ...string) error {
	if s.noted && s.noteLoose {
		note, err := s.notes()
		if err != nil {
			s.r.journal.forget()
			return err
		}
		if note != s.noteFile {
			defer note.Close()
		}
		files = append(files, note)
	}
	s.noteSolid = s.noted
	if err := s.r.journal.commit(files, append(dirs, s.r.dir+"/"+stagingDir)...); err != nil {
		return err
	}
	s.noteLoose = false
	return nil
}
