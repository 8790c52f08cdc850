package fs

import (
	"context"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/meta"
)

// Answers go-fuse does not name.
const (
	statusStale       = fuse.Status(syscall.ESTALE)
	statusNameTooLong = fuse.Status(syscall.ENAMETOOLONG)
	statusNotTTY      = fuse.Status(syscall.ENOTTY)
)

// errnos says what the kernel is told for each error that crosses the seams.
// The first match counts. What is not listed is EIO: an ENOSYS would make the
// kernel stop sending that request for good, and the errno of a socket or of
// the cache's disk would say something untrue about the file.
var errnos = []struct {
	err   error
	errno syscall.Errno
}{
	{context.Canceled, syscall.EINTR}, // the caller is being killed
	{context.DeadlineExceeded, syscall.EIO},
	{meta.ErrUnavailable, syscall.EIO}, // before ErrNotFound: an outage is never an absence
	{meta.ErrDenied, syscall.EIO},
	{meta.ErrFormat, syscall.EIO},
	{meta.ErrGap, syscall.EIO},
	{meta.ErrNotFound, syscall.ENOENT},
	{meta.ErrExist, syscall.EEXIST},
	{meta.ErrConflict, syscall.EAGAIN},
	{meta.ErrStale, syscall.ESTALE},
	{meta.ErrNoXAttr, syscall.ENODATA},
	{meta.ErrXAttrSpace, syscall.ENOSPC},
	{meta.ErrLoop, syscall.EINVAL},
	{errMixed, syscall.ESTALE},
	{meta.ErrNotDir, syscall.ENOTDIR},
	{meta.ErrIsDir, syscall.EISDIR},
	{meta.ErrNotEmpty, syscall.ENOTEMPTY},
	{meta.ErrName, syscall.EINVAL},
	{chunk.ErrNotHeld, syscall.EIO},
	{chunk.ErrWrongNode, syscall.EIO},
	{chunk.ErrRefused, syscall.EIO},
	{chunk.ErrCorrupt, syscall.EIO},
	{chunk.ErrSourceChanged, syscall.EIO},
	{chunk.ErrDamaged, syscall.EIO},
	{chunk.ErrNoProvider, syscall.EIO},
	{chunk.ErrStalled, syscall.EIO},
	{chunk.ErrNoSpace, syscall.EIO}, // of the cache: not the reader's disk
	{chunk.ErrClosed, syscall.EIO},
}

// writerErrnos come before errnos for whoever changes something: here the cache's
// disk is the writer's.
var writerErrnos = []struct {
	err   error
	errno syscall.Errno
}{
	{chunk.ErrNoSpace, syscall.ENOSPC},
	{syscall.ENOSPC, syscall.ENOSPC},
	{syscall.EDQUOT, syscall.EDQUOT},
	{syscall.EFBIG, syscall.EFBIG},
}

// toStatus returns what the kernel is told for err.
func toStatus(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			return fuse.Status(e.errno)
		}
	}
	return fuse.EIO
}

// byNode is toStatus for requests that name a node id: what vanished under a
// node id is stale, which makes the kernel look the name up again. ENOENT
// would go to the user although a new file may stand under that name.
func byNode(err error) fuse.Status {
	if st := toStatus(err); st != fuse.ENOENT {
		return st
	}
	return statusStale
}

// byWriter is toStatus for requests that change something.
func byWriter(err error) fuse.Status {
	for _, e := range writerErrnos {
		if errors.Is(err, e.err) {
			return fuse.Status(e.errno)
		}
	}
	return toStatus(err)
}

// byOwner is byWriter for requests about a file that the caller has open, or is
// about to: as byNode.
func byOwner(err error) fuse.Status {
	if st := byWriter(err); st != fuse.ENOENT {
		return st
	}
	return statusStale
}

// byFile is byWriter for requests that the local file system answers in its own
// words: what it cannot do, and where there is nothing.
func byFile(err error) fuse.Status {
	for _, errno := range []syscall.Errno{syscall.EOPNOTSUPP, syscall.ENXIO} {
		if errors.Is(err, errno) {
			return fuse.Status(errno)
		}
	}
	return byWriter(err)
}

// isAnswer reports whether a status is an answer about names, as when another
// node was faster, not a failure of this node that somebody should hear of.
func isAnswer(st fuse.Status) bool {
	switch syscall.Errno(st) {
	case syscall.ENOENT, syscall.ESTALE, syscall.EEXIST, syscall.ENOTDIR, syscall.EISDIR, syscall.ENOTEMPTY,
		syscall.EINVAL, syscall.EFBIG, syscall.ENXIO, syscall.EOPNOTSUPP, syscall.ENODATA:
		return true
	}
	return false
}
