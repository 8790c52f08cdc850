// Package fs shows names as files: it answers the kernel's FUSE requests.
//
// It owns the table of node ids the kernel knows, the open handles, the ids of
// backing files the kernel reads by itself, and the notices that tell the
// kernel to forget something. It is thin: names come from Names, bytes from
// Bytes, and it knows nothing of stores, of blocks on disk or of transports.
//
// An inode that is open has a nature, which it keeps until its last handle is
// closed, because the kernel allows one inode only one way of reading at a
// time:
//
//   - passthrough: every byte is on this machine; the kernel reads the local
//     file by itself and no read reaches this process;
//   - local: every byte is here, and the kernel cannot read the file by itself;
//     reads are answered with ranges of the local file;
//   - incomplete: reads bring what is missing.
//
// When an object becomes complete, the pages read so far are dropped and the
// next first open passes through. A large file that is still open is handed
// over at once: its name gets a new inode (same st_ino, next generation), and
// the old handles go on as they were.
//
// Locks: table.mu, slots.mu, notifier.mu and passthrough.mu are leaves. None is
// held across a call of Names, Bytes or a notice to the kernel; no handler
// waits for a notice.
package fs
