package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"
)

// savesAtOnce is how many files are copied side by side.
const savesAtOnce = 2

// saver copies files that have come to a directory, while others still come.
type saver struct {
	ctx  context.Context // of the command
	dir  string
	base []string // by path named: what its files are saved under

	mu    sync.Mutex
	queue []saving
	busy  int
	work  sync.WaitGroup
	bad   []notSaved
}

type saving struct{ from, to string }

type notSaved struct {
	path string
	err  error
}

// newSaver makes dir. Two paths whose files would get the same names are
// refused.
func newSaver(ctx context.Context, dir string, paths []string) (*saver, error) {
	s := &saver{ctx: ctx, dir: dir}
	seen := map[string]string{}
	for _, p := range paths {
		base := path.Base(p)
		if other, ok := seen[base]; ok && other != p {
			return nil, usagef("--save-dir: %s and %s would both be saved as %s", quoteName(other), quoteName(p), quoteName(filepath.Join(dir, base)))
		}
		seen[base] = p
		s.base = append(s.base, base)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of --save-dir: %w", err)
	}
	return s, nil
}

// add has a file copied; from says which of the paths it lies under, and inside
// where below it.
func (s *saver) add(file string, from int, inside string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, saving{file, filepath.Join(s.dir, s.base[from], inside)})
	if s.busy < savesAtOnce {
		s.busy++
		s.work.Go(s.run)
	}
}

func (s *saver) run() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.busy--
			s.mu.Unlock()
			return
		}
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		if err := saveFile(s.ctx, next.from, next.to); err != nil {
			s.mu.Lock()
			s.bad = append(s.bad, notSaved{next.from, err})
			s.mu.Unlock()
		}
	}
}

// wait returns, when all is copied, what could not be.
func (s *saver) wait() []notSaved {
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad
}

// saveFile copies a file, with its mode and its time. The copy appears whole,
// and is durable then, or not at all.
func saveFile(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	err = wholeFile(to, "warm", func(tmp *os.File) error {
		n, err := io.CopyBuffer(struct{ io.Writer }{tmp}, endingReader{ctx, in}, make([]byte, 1<<20))
		if err == nil && n != fi.Size() {
			err = fmt.Errorf("%d of %d bytes: %w", n, fi.Size(), io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		return errors.Join(tmp.Chmod(fi.Mode().Perm()), os.Chtimes(tmp.Name(), fi.ModTime(), fi.ModTime()), tmp.Sync())
	})
	if err != nil {
		return fmt.Errorf("copy to %s: %w", quoteName(to), err)
	}
	return nil
}

// endingReader reads until a context ends.
type endingReader struct {
	ctx context.Context
	r   io.Reader
}

func (r endingReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
