// Package cache owns the bytes of objects on this machine: the files of
// fetched objects with their maps of present blocks, the registered files
// that are served from where they lie, the files being written and the kept
// objects they become, the budget, and eviction. It implements chunk.Store and chunk.Source.
//
// A root directory holds
//
//	root.json         layout version, node id, cluster id
//	lock              flock of the one process that uses the root
//	objects/xx/*.data bytes of an object, a sparse file
//	objects/xx/*.map  which of its blocks are present, and their sums
//	objects/xx/*.sums sums bound for a registered file
//	inplace.db        the registered files (one root only)
//	staging/*.data    bytes of a file being written
//	staging/*.note    what it is, in the words of whoever writes it; becomes a small object's map
//	staging/*.base    of a private copy: its base, and which blocks it has of its own
//	staging/mark      changed to make other changes durable (journal)
//
// An object lies on one root. What may be believed after a crash:
//
//   - A killed process loses nothing: data, then sum and presence (one
//     512-byte sector with its own checksum) reach the page cache in that
//     order.
//   - A killed machine loses what was not yet flushed. A map carries the boot
//     id it was written under; under another one only blocks marked synced are
//     trusted, and the rest is compared with its sums before it counts.
//   - A map that is torn, short, garbage or another object's makes the object
//     absent, never wrong.
//
// A complete file is sealed: mode 0444, never written and never punched again,
// because handles that this process cannot know of may read it. It leaves by
// unlink only, and an object opened again after that is a new file.
//
// A kept object says so in its map, and is neither evicted nor dropped. What a
// crash leaves of a publish is told at Staged.Publish.
//
// Lock order: Cache.mu and file.mu are never held together, nor placed.mu with
// either. Cache.mu is never held across I/O. Of a staged file: publish, mu,
// noteMu, and then Cache.mu or stagedTable.mu.
//
// The package knows nothing of names, peers' addresses or FUSE.
package cache
