package staging

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/fs"
)

// Read implements fs.WriteFile.
func (f *file) Read(ctx context.Context, off, n int64) (chunk.Data, error) {
	f.reads.RLock()
	defer f.reads.RUnlock()
	if d := f.bytes(); d != nil {
		return d.Read(ctx, off, n)
	}
	r, err := f.open(ctx)
	if err != nil {
		return chunk.Data{}, err
	}
	return r.Read(ctx, off, n)
}

// drafted returns the content if it is being written, else nil.
func (f *file) drafted() *draft {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.draft
}

// bytes returns the staged file that holds the content; nil: none does.
func (f *file) bytes() *draft {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.draft != nil:
		return f.draft
	case f.sealed != nil:
		return f.sealed.draft
	}
	return f.last
}

// open returns the reader of a published object; f.reads is held.
func (f *file) open(ctx context.Context) (fs.Reader, error) {
	f.mu.Lock()
	r, o := f.reader, f.object
	f.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := f.a.cfg.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open object %s: %w", o.ID.Short(), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reader != nil { // another read was first
		r.Close()
	} else {
		f.reader = r
	}
	return f.reader, nil
}

// contentLocked returns the object that the content is, when it is no draft.
func (f *file) contentLocked() chunk.Object {
	if f.sealed != nil {
		return f.sealed.object
	}
	return f.object
}

// change runs do on the draft, made if there is none: what was published, or
// is on its way, is never written.
func (f *file) change(ctx context.Context, do func(*draft) error) error {
	for {
		f.io.RLock()
		if d := f.drafted(); d != nil {
			err := do(d)
			if err == nil {
				f.touch()
			}
			f.io.RUnlock()
			return err
		}
		f.io.RUnlock()
		if err := f.unshare(ctx, false); err != nil {
			return err
		}
	}
}

// unshare makes a private copy of the content, or an empty draft.
func (f *file) unshare(ctx context.Context, empty bool) error {
	f.io.Lock()
	defer f.io.Unlock()
	if f.drafted() != nil {
		return nil
	}
	f.mu.Lock()
	o := f.contentLocked()
	f.mu.Unlock()
	if o.Size == 0 {
		empty = true
	}
	d, err := f.a.newDraft(ctx, o, empty)
	if err != nil {
		return err
	}
	return f.adopt(d)
}

// adopt makes a draft the content; f.io is held alone.
func (f *file) adopt(d *draft) error {
	at, _ := f.place()
	f.mu.Lock()
	n := f.noteLocked(at, stateOpen)
	n.object, n.sent = chunk.Object{}, false
	f.mu.Unlock()
	if err := d.note(n, false); err != nil {
		return errors.Join(err, d.Discard(), d.Close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draft = d
	return nil
}

// readFull fills p with the bytes at off.
func readFull(ctx context.Context, r fs.Reader, off int64, p []byte) error {
	for len(p) > 0 {
		d, err := r.Read(ctx, off, int64(len(p)))
		if err != nil {
			return err
		}
		n := d.N
		if d.Bytes != nil {
			n = copy(p, d.Bytes)
		} else if n > 0 {
			n, err = d.File.ReadAt(p[:min(n, len(p))], d.Off)
		}
		d.Release()
		if n <= 0 {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read at %d: %w", off, err)
		}
		off, p = off+int64(n), p[n:]
	}
	return nil
}

// Write implements fs.WriteFile.
func (f *file) Write(ctx context.Context, b []byte, off int64, appending bool) error {
	return f.change(ctx, func(d *draft) error {
		if appending {
			_, err := d.Append(ctx, b)
			return err
		}
		return d.WriteAt(ctx, b, off)
	})
}

// Resize implements fs.WriteFile. Of what is cut to nothing, nothing is taken
// over.
func (f *file) Resize(ctx context.Context, size int64) error {
	if size == 0 {
		if err := f.unshare(ctx, true); err != nil {
			return err
		}
	}
	return f.change(ctx, func(d *draft) error { return d.Truncate(ctx, size) })
}

// Allocate implements fs.WriteFile.
func (f *file) Allocate(ctx context.Context, off, n int64, mode uint32) error {
	return f.change(ctx, func(d *draft) error { return d.Allocate(ctx, off, n, mode) })
}

// Seek implements fs.WriteFile.
func (f *file) Seek(ctx context.Context, off int64, whence uint32) (int64, error) {
	f.reads.RLock()
	defer f.reads.RUnlock()
	if d := f.bytes(); d != nil {
		return d.Seek(ctx, off, int(whence))
	}
	return seekWhole(f.Entry().Size, off, whence)
}

// Sync implements fs.WriteFile.
func (f *file) Sync(ctx context.Context) error {
	f.io.RLock()
	defer f.io.RUnlock()
	d := f.drafted()
	if d == nil {
		return nil // sealed or published: durable
	}
	at, _ := f.place()
	f.mu.Lock()
	n := f.noteLocked(at, f.stateLocked(at.Name))
	f.mu.Unlock()
	if err := d.Sync(ctx); err != nil {
		return err
	}
	return d.note(n, true)
}

// seekWhole is lseek in a file without holes.
func seekWhole(size, off int64, whence uint32) (int64, error) {
	switch {
	case off < 0 || off >= size:
		return 0, unix.ENXIO
	case whence == unix.SEEK_DATA:
		return off, nil
	case whence == unix.SEEK_HOLE:
		return size, nil
	}
	return 0, unix.EINVAL
}

// stateLocked returns what the note of what is not published says.
func (f *file) stateLocked(name string) state {
	switch {
	case !f.closed:
		return stateOpen
	case !f.published && f.a.private(name):
		return statePrivate
	case f.failed != nil:
		return stateFailed
	case f.draft == nil && f.sealed != nil:
		return statePublishing
	}
	return stateOpen
}
