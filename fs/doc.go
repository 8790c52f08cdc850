// Package fs shows names as files: it answers the kernel's FUSE requests.
//
// It owns the table of node ids the kernel knows, the open handles, the ids of
// backing files the kernel reads by itself, and the notices that tell the
// kernel to forget something. It is thin: names come from Names, bytes from
// Bytes, what is changed goes to Changes, and it knows nothing of stores, of
// blocks on disk, of transports or of how something is published.
//
// An inode that is open has a nature, which it keeps until its last handle is
// closed, because the kernel allows one inode only one way of reading at a
// time:
//
//   - passthrough: every byte is on this machine; the kernel reads the local
//     file by itself and no read reaches this process;
//   - local: every byte is here, and the kernel cannot read the file by itself;
//     reads are answered with ranges of the local file;
//   - incomplete: reads bring what is missing;
//   - staged: the file is being written here, or is not published yet. All
//     handles share one WriteFile, through the page cache.
//
// When an object becomes complete, the pages read so far are dropped and the
// next first open passes through. A large file that is still open is handed
// over at once: its name gets a new inode (same st_ino, next generation), and
// the old handles go on as they were. The same happens to a file that is to be
// written while somebody reads it in another way: the open is answered by
// ESTALE, the kernel looks the name up again and finds an inode that can be
// opened for writing; who had it open keeps the object it was.
//
// A close by the process that opened a file publishes what was written; what
// no such close has is published when the kernel releases the handle.
//
// Locks: table.mu, slots.mu, staged.mu, notifier.mu and passthrough.mu are
// leaves. None is held across a call of Names, Bytes, Changes or a WriteFile, or
// a notice to the kernel; no handler waits for a notice.
package fs
