package cache

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// nextData returns the first offset at or after off that may hold something
// other than zeros; the largest offset if there is none. It moves the file's
// own offset, which nobody who shares the file may use.
func nextData(f *os.File, off int64) (int64, error) {
	next, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case err == nil:
		return next, nil
	case errors.Is(err, unix.ENXIO): // nothing but a hole up to the end
		return math.MaxInt64, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return off, nil // not told: it may all be data
	}
	return 0, &os.PathError{Op: "seek", Path: f.Name(), Err: err}
}
